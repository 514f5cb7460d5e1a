//! Byte streams between client and server: the transport trait, its conformance suite, TCP.
