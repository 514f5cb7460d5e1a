//! What graphs on the server need of this process while they run: functions of the program, and bytes of its memory.
//!
//! The worker knows functions and memory by numbers only: it can have called and read what the program put into graphs, and nothing else.

use core::ffi::c_void;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use outboard_abi::{CUhostFn, CUresult};
use outboard_front::backend::{ContextId, HostCall, Result};
use outboard_wire::Reader;
use outboard_wire::graph::{CopyNode, HostNode, NodeParams, Place, Rows};
use outboard_wire::request::{GRAPH_CALL, GRAPH_PIECE, GRAPH_READ, GRAPH_WRITE};

use crate::link::Expectation;
use crate::requests::Answerer;

/// A box of the program's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct HostBox {
    address: u64,
    /// Bytes from row to row, rows from slice to slice.
    pitch: u64,
    height: u64,
    /// Bytes of a row, rows of a slice, slices.
    extent: [u64; 3],
}

#[derive(Debug, Default)]
struct State {
    last: u64,
    calls: HashMap<u64, Arc<Mutex<HostCall>>>,
    boxes: HashMap<u64, HostBox>,
    /// Numbers given out: the same thing twice has one.
    numbers: HashMap<(u64, u64), u64>,
    box_numbers: HashMap<HostBox, u64>,
    /// Requests are heard once there is anything to ask for.
    expected: Option<Expectation>,
    /// Graphs and executables that use this process, and the graphs around those inside conditional nodes.
    users: HashSet<u64>,
    around: HashMap<u64, u64>,
}

/// All that graphs may ask for.
#[derive(Debug, Default)]
pub(crate) struct GraphHosts(Mutex<State>);

impl GraphHosts {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts numbers in place of the program's functions and addresses. `expect` is asked the first time.
    pub(crate) fn translate(
        &self,
        params: NodeParams,
        expect: impl FnOnce() -> Result<Expectation>,
    ) -> Result<NodeParams> {
        let is_host = |place: &Place| matches!(place, Place::Host(_));
        match params {
            NodeParams::Host(HostNode { function, data }) => {
                let mut state = self.ready(expect)?;
                Ok(NodeParams::Host(HostNode { function: state.call(function, data)?, data: 0 }))
            }
            NodeParams::Copy(copy) if is_host(&copy.dst) || is_host(&copy.src) => {
                let mut state = self.ready(expect)?;
                let CopyNode { ctx, dst, src, extent } = copy;
                let (dst, src) = (state.place(dst, extent), state.place(src, extent));
                Ok(NodeParams::Copy(CopyNode { ctx, dst, src, extent }))
            }
            params => Ok(params),
        }
    }

    /// Notes whether a graph uses this process because of one of its nodes.
    pub(crate) fn note(&self, graph: u64, params: &NodeParams) {
        let is_host = |place: &Place| matches!(place, Place::Host(_));
        let uses = match params {
            NodeParams::Host(_) => true,
            NodeParams::Copy(copy) => is_host(&copy.dst) || is_host(&copy.src),
            NodeParams::Child { graph: inner, moved } => {
                if *moved {
                    self.state().around.insert(*inner, graph);
                }
                self.is_user(*inner)
            }
            NodeParams::Conditional(node) => {
                self.state().around.extend(node.bodies.iter().map(|body| (*body, graph)));
                false
            }
            _ => false,
        };
        if uses {
            let state = &mut *self.state();
            let mut next = Some(graph);
            while let Some(graph) = next {
                state.users.insert(graph);
                next = state.around.get(&graph).copied();
            }
        }
    }

    /// Notes that an executable was made or updated from a graph.
    pub(crate) fn made(&self, exec: u64, graph: u64) {
        let mut state = self.state();
        if state.users.contains(&graph) {
            state.users.insert(exec);
        }
    }

    /// Whether a graph or an executable uses this process.
    pub(crate) fn is_user(&self, name: u64) -> bool {
        self.state().users.contains(&name)
    }

    /// Forgets a graph or an executable.
    pub(crate) fn forget(&self, name: u64) {
        let mut state = self.state();
        state.users.remove(&name);
        state.around.remove(&name);
    }

    fn ready(&self, expect: impl FnOnce() -> Result<Expectation>) -> Result<MutexGuard<'_, State>> {
        if self.state().expected.is_none() {
            let expected = expect()?;
            self.state().expected = Some(expected);
        }
        Ok(self.state())
    }
}

impl State {
    fn call(&mut self, function: u64, data: u64) -> Result<u64> {
        if let Some(number) = self.numbers.get(&(function, data)) {
            return Ok(*number);
        }
        // SAFETY: the number is a function pointer, or 0 for `None`: the front made it from one.
        let pointer = unsafe { core::mem::transmute::<usize, CUhostFn>(function as usize) };
        // SAFETY: the program gave both for this.
        let call = unsafe { HostCall::plain(pointer, data as *mut c_void) }?;
        self.last += 1;
        self.calls.insert(self.last, Arc::new(Mutex::new(call)));
        self.numbers.insert((function, data), self.last);
        Ok(self.last)
    }

    fn place(&mut self, place: Place, extent: [u64; 3]) -> Place {
        let Place::Host(rows) = place else { return place };
        let wanted = HostBox { address: rows.address, pitch: rows.pitch, height: rows.height, extent };
        let number = match self.box_numbers.get(&wanted) {
            Some(number) => *number,
            None => {
                self.last += 1;
                self.boxes.insert(self.last, wanted);
                self.box_numbers.insert(wanted, self.last);
                self.last
            }
        };
        Place::Host(Rows { address: number, pitch: 0, height: 0 })
    }
}

impl HostBox {
    /// Calls with address and length of each stretch of memory that makes up bytes `at..at + len` of the box. `None` if there are not as many.
    fn stretches(&self, at: u64, len: usize, mut each: impl FnMut(u64, usize)) -> Option<()> {
        let [width, rows, slices] = self.extent;
        let end = at.checked_add(len as u64)?;
        if end > width.checked_mul(rows)?.checked_mul(slices)? {
            return None;
        }
        let mut at = at;
        while at < end {
            let (row, x) = (at / width, at % width);
            let (slice, y) = (row / rows, row % rows);
            let piece = (width - x).min(end - at);
            each(self.address + (slice * self.height + y) * self.pitch + x, piece as usize);
            at += piece;
        }
        Some(())
    }

    fn read(&self, at: u64, len: usize) -> Option<Vec<u8>> {
        let mut bytes = Vec::with_capacity(len);
        self.stretches(at, len, |address, len| {
            // SAFETY: the program keeps the memory of a copy node readable while the graph may run.
            bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(address as *const u8, len) });
        })?;
        Some(bytes)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> Option<()> {
        let mut rest = bytes;
        self.stretches(at, bytes.len(), |address, len| {
            let (piece, later) = rest.split_at(len);
            // SAFETY: the program keeps the memory of a copy node writable while the graph may run.
            unsafe { core::ptr::copy_nonoverlapping(piece.as_ptr(), address as *mut u8, len) };
            rest = later;
        })
    }
}

impl Answerer for GraphHosts {
    fn answer(&self, kind: u32, _ctx: ContextId, body: &mut Reader<'_>) -> Option<Result<Vec<u8>>> {
        let broken = Some(Err(CUresult::CUDA_ERROR_INVALID_VALUE));
        let outcome = match kind {
            GRAPH_CALL => {
                let Ok(number) = body.get::<u64>() else { return broken };
                let call = self.state().calls.get(&number).cloned();
                call.map(|call| {
                    call.lock().unwrap_or_else(PoisonError::into_inner).call(CUresult::CUDA_SUCCESS);
                    Vec::new()
                })
            }
            GRAPH_READ => {
                let (Ok(number), Ok(at), Ok(len)) = (body.get::<u64>(), body.get::<u64>(), body.get::<u32>()) else {
                    return broken;
                };
                let found = self.state().boxes.get(&number).copied();
                found.filter(|_| len as usize <= GRAPH_PIECE).and_then(|found| found.read(at, len as usize))
            }
            GRAPH_WRITE => {
                let (Ok(number), Ok(at)) = (body.get::<u64>(), body.get::<u64>()) else { return broken };
                let found = self.state().boxes.get(&number).copied();
                found.and_then(|found| found.write(at, body.take_rest())).map(|()| Vec::new())
            }
            _ => return None,
        };
        Some(outcome.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_are_counted_row_by_row() {
        let memory: Vec<u8> = (0..64).collect();
        let mut target = vec![0u8; 64];
        // Rows of 3 bytes, 8 apart; slices of 2 rows, 4 rows apart.
        let at =
            |memory: &[u8]| HostBox { address: memory.as_ptr() as u64 + 1, pitch: 8, height: 4, extent: [3, 2, 2] };
        let source = at(&memory);
        let all = source.read(0, 12).unwrap();
        assert_eq!(all, [1, 2, 3, 9, 10, 11, 33, 34, 35, 41, 42, 43]);
        assert_eq!(source.read(2, 5).unwrap(), all[2..7]);
        assert!(source.read(8, 5).is_none() && source.read(u64::MAX, 2).is_none());
        let sink = at(&target);
        sink.write(0, &all[..7]).unwrap();
        sink.write(7, &all[7..]).unwrap();
        assert_eq!(sink.read(0, 12).unwrap(), all);
        assert!(sink.write(12, &[1]).is_none());
        assert_eq!(std::mem::take(&mut target)[4..9], [0; 5]);
    }
}
