//! Messages, frames and their codec, with limits. No sockets, no unsafe.
