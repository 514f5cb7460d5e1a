//! A server that says anything, to a client with a launch and copies under way: frames, notices and
//! requests, and what comes on lanes. It reaches nothing of the program's that these do not need.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&which, data)) = data.split_first() else { return };
    if which & 1 == 0 {
        outboard_client::fuzzing::session(data)
    } else {
        outboard_client::fuzzing::lanes(data)
    }
});
