//! `libcuda.so.1`: the client library that programs load. Exports the C entry points, and nothing else.

use outboard_client::Remote;
use outboard_front::{Library, Process};

struct Libcuda;

impl Library for Libcuda {
    type Backend = Remote;

    #[inline]
    fn process() -> &'static Process<Remote> {
        static REMOTE: Remote = Remote::new();
        static PROCESS: Process<Remote> = Process::of_library::<Libcuda>(&REMOTE);
        &PROCESS
    }
}

outboard_front::driver_exports!(Libcuda);
