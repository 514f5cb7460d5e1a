//! The worker of another server, which says anything over a link while the client has copies and
//! signals under way between the two. It reaches nothing but the memory of a copy that it was told
//! to send, and gets no byte before it has asked for it.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| outboard_worker::hostile_peer(data));
