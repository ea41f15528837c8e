"""Parts of other libraries, done by this one in programs that are not changed."""
