//! `libcuda.so.1`: the client library that programs load. Exports the C entry points, and nothing
//! else.

use outboard_client::Remote;
use outboard_front::backend::ServerId;
use outboard_front::several::Several;
use outboard_front::{Library, Process};

struct Libcuda;

impl Library for Libcuda {
    type Backend = Several<Remote>;

    #[inline]
    fn process() -> &'static Process<Several<Remote>> {
        static SERVERS: Several<Remote> = Several::new(Remote::new(ServerId::FIRST));
        static PROCESS: Process<Several<Remote>> = Process::of_library::<Libcuda>(&SERVERS);
        &PROCESS
    }
}

outboard_front::driver_exports!(Libcuda);
