//! Settings of core dumps. A dump would be a file of the server's, so none is made: settings that
//! only describe a dump are stored, and settings that would cause one are refused.

use core::ffi::c_int;

use parking_lot::Mutex;

/// What describes a dump.
pub(crate) struct Settings {
    pub(crate) trigger_host: bool,
    pub(crate) lightweight: bool,
    pub(crate) flags: c_int,
    pub(crate) file: Option<String>,
    pub(crate) pipe: Option<String>,
}

/// What a process said of core dumps. One set serves contexts and process: none of it has an
/// effect.
pub(crate) struct CoreDumps {
    pub(crate) settings: Mutex<Settings>,
}

impl CoreDumps {
    pub(crate) const fn new() -> CoreDumps {
        CoreDumps {
            settings: Mutex::new(Settings {
                trigger_host: true,
                lightweight: false,
                flags: 0,
                file: None,
                pipe: None,
            }),
        }
    }
}
