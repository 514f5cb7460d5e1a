//! Queries of NVML: answered by the server's NVML or, without one, from the driver library, as for
//! the software device.

mod described;
mod limited;
mod memory;
mod native;
mod processes;

use std::cell::OnceCell;
use std::path::PathBuf;

use crate::budget::MemoryLimits;
use outboard_abi::nvml::nvmlReturn_t;
use outboard_nvml::{Argument, Function, decode, find, written};
use outboard_wire::platform::Platform;
use outboard_wire::{DecodeError, Writer};

use described::Described;
use memory::Block;
use native::Native;

/// What answers the questions of one session. Nothing is loaded before the first.
pub(super) struct Management {
    driver: PathBuf,
    nvml: Option<PathBuf>,
    native: OnceCell<Option<Native>>,
    described: Described,
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
            described: Described::new(),
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
        let Some(function) = find(function) else {
            return Ok((nvmlReturn_t::NVML_ERROR_FUNCTION_NOT_FOUND, Vec::new()));
        };
        let arguments = decode(function, arguments)?;
        let devices = platform.devices.len();
        if arguments.iter().any(
            |argument| matches!(argument, Argument::Device(index) if *index as usize >= devices),
        ) {
            return Ok((nvmlReturn_t::NVML_ERROR_INVALID_ARGUMENT, Vec::new()));
        }
        let mut blocks: Vec<Block> = arguments.iter().map(Block::of).collect();
        let status = match self.native(platform) {
            Some(native) => native.call(function, &arguments, &mut blocks),
            None => self.described.answer(platform, function.name, &arguments, &mut blocks),
        };
        if status == nvmlReturn_t::NVML_SUCCESS
            && let Some(Argument::Device(device)) = arguments.first()
        {
            let ordinal = platform.devices[*device as usize].id.ordinal();
            if let Some(limit) = self.limits.of(ordinal) {
                limited::memory(function.name, ordinal, limit, &mut blocks);
            }
        }
        let worth = [nvmlReturn_t::NVML_SUCCESS, nvmlReturn_t::NVML_ERROR_INSUFFICIENT_SIZE]
            .contains(&status);
        Ok((status, if worth { results(function, &arguments, &blocks) } else { Vec::new() }))
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

fn results(function: &Function, arguments: &[Argument<'_>], blocks: &[Block]) -> Vec<u8> {
    let mut writer = Writer::new();
    for (index, param) in function.params.iter().enumerate() {
        if param.is_output() && arguments[index] != Argument::Null {
            writer.bytes(written(function, arguments, index, |index| blocks[index].bytes()));
        }
    }
    writer.into_vec()
}
