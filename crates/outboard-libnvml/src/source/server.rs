//! Questions that a server answers.

use outboard_abi::nvml::nvmlReturn_t;
use outboard_client::Query;
use outboard_wire::Reader;
use outboard_wire::messages::{NvmlProcesses, NvmlProcessesReply, NvmlQuery, NvmlQueryReply};

use super::failed;
use crate::border::Result;

/// For a server that does not know the message, or answers something else.
const UNKNOWN: nvmlReturn_t = nvmlReturn_t::NVML_ERROR_UNKNOWN;

pub(super) fn query(
    server: &Query,
    function: &str,
    arguments: &[u8],
) -> Result<(nvmlReturn_t, Vec<u8>)> {
    let message = NvmlQuery { function, arguments };
    let payload = server.ask(&message).map_err(failed)?.ok_or(UNKNOWN)?;
    let reply: NvmlQueryReply<'_> = Reader::new(&payload).get().map_err(|_| UNKNOWN)?;
    Ok((nvmlReturn_t(reply.status), reply.results.to_vec()))
}

pub(super) fn processes(server: &Query, device: u32) -> Result<Vec<(u32, u64)>> {
    let payload = server.ask(&NvmlProcesses { device }).map_err(failed)?.ok_or(UNKNOWN)?;
    let reply: NvmlProcessesReply = Reader::new(&payload).get().map_err(|_| UNKNOWN)?;
    Ok(reply.processes)
}
