//! Queries of NVML: answered by the server's NVML or, without one, from the driver library, as for
//! the software device.

mod limited;
mod native;
mod processes;

use std::cell::OnceCell;
use std::path::PathBuf;

use crate::budget::MemoryLimits;
use outboard_abi::nvml::nvmlReturn_t;
use outboard_control::board::{self, Board};
use outboard_nvml::Argument;
use outboard_nvml_answers::{Described, Question, Use};
use outboard_wire::DecodeError;
use outboard_wire::platform::Platform;

use native::Native;

/// What all sessions of this server use, as the board says.
struct OfAllSessions;

impl Use for OfAllSessions {
    fn processes(&self) -> Vec<u32> {
        let sessions = board::get().map_or(Vec::new(), Board::sessions);
        sessions.iter().map(|session| session.worker).collect()
    }

    fn memory(&self, ordinal: u32) -> u64 {
        let sessions = board::get().map_or(Vec::new(), Board::sessions);
        sessions.iter().map(|session| session.used(ordinal)).sum()
    }
}

/// What answers the questions of one session. Nothing is loaded before the first.
pub(super) struct Management {
    driver: PathBuf,
    nvml: Option<PathBuf>,
    native: OnceCell<Option<Native>>,
    described: Described<OfAllSessions>,
    /// Bytes of memory of a device that the session may have.
    limits: MemoryLimits,
}

impl Management {
    /// `driver` is the driver library that the session uses.
    pub(super) fn new(driver: PathBuf, limits: MemoryLimits) -> Management {
        Management {
            driver,
            nvml: None,
            native: OnceCell::new(),
            described: Described::new(OfAllSessions),
            limits,
        }
    }

    /// Sets the NVML library to load, if it is not the usual one.
    pub(super) fn use_library(&mut self, nvml: Option<PathBuf>) {
        self.nvml = nvml;
    }

    /// Answers a question of a client: NVML's status, and the results encoded. An error is a breach
    /// of the protocol.
    pub(super) fn answer(
        &self,
        platform: &Platform,
        function: &str,
        arguments: &[u8],
    ) -> Result<(nvmlReturn_t, Vec<u8>), DecodeError> {
        let mut question = match Question::read(function, arguments, platform.devices.len())? {
            Ok(question) => question,
            Err(status) => return Ok((status, Vec::new())),
        };
        let status = match self.native(platform) {
            Some(native) => native.call(&mut question),
            None => self.described.answer(platform, &mut question),
        };
        if status == nvmlReturn_t::NVML_SUCCESS
            && let Some(Argument::Device(device)) = question.arguments.first()
        {
            let ordinal = platform.devices[*device as usize].id.ordinal();
            if let Some(limit) = self.limits.of(ordinal) {
                limited::memory(question.function.name, ordinal, limit, &mut question.blocks);
            }
        }
        Ok((status, question.results(status)))
    }

    /// The processes of the client's machine that use a device, each with its bytes of device
    /// memory.
    pub(super) fn processes(&self, platform: &Platform, device: u32) -> Vec<(u32, u64)> {
        let Some(offered) = platform.devices.get(device as usize) else { return Vec::new() };
        let native = self.native(platform).map(|native| native.processes(device));
        processes::list(offered.id.ordinal(), native.as_deref())
    }

    /// The server's NVML, if it knows the session's devices: one that does not is for other devices
    /// than the driver library's.
    fn native(&self, platform: &Platform) -> Option<&Native> {
        let load = || Native::load(self.nvml.as_deref(), &self.driver, platform);
        self.native.get_or_init(load).as_ref()
    }
}
