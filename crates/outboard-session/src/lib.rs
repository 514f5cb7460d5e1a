//! Ordering, posting, acknowledgement of commands, without sockets or clocks.
