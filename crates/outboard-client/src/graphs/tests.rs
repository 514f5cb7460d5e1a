use core::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};

use outboard_wire::graph::ConditionalNode;
use outboard_wire::{DevicePtr, Writer};

use super::*;
use crate::outstanding::Known;

unsafe extern "C" fn add_one(data: *mut c_void) {
    // SAFETY: the tests give a counter.
    unsafe { &*data.cast::<AtomicU64>() }.fetch_add(1, Ordering::Relaxed);
}

/// Hosts that hear requests in no way: the tests ask them.
struct Asked(GraphHosts, Arc<Outstanding>);

const CTX: ContextId = ContextId(1);
const STREAM: StreamId = StreamId(9);

impl Asked {
    fn new() -> Asked {
        let outstanding = Arc::new(Outstanding::default());
        Asked(GraphHosts::new(Arc::clone(&outstanding)), outstanding)
    }

    /// Puts parameters into a node; what the worker is told.
    fn set(&self, graph: ObjectId, node: u64, params: NodeParams) -> NodeParams {
        self.0.set_node(graph, node, params, || Ok(())).unwrap()
    }

    /// Puts a host node into a graph; its number.
    fn host(&self, graph: ObjectId, node: u64, counter: &AtomicU64) -> u64 {
        let NodeParams::Host(host) = self.set(graph, node, host(counter)) else {
            panic!("another kind of node")
        };
        host.function
    }

    /// Makes an executable.
    fn made(&self, exec: ObjectId, graph: ObjectId) {
        self.0.made(exec, graph, self.0.of_graph(graph));
    }

    /// Launches an executable with command `seq`.
    fn launch(&self, exec: ObjectId, seq: u64) -> Option<Launch> {
        let launch = self.0.launch(exec, CTX, STREAM)?;
        launch.is(seq);
        Some(launch)
    }

    /// A wait, command `seq`, has succeeded.
    fn waited(&self, seq: u64) {
        self.1.learned(Known::Stream(CTX, STREAM), seq, |_| false);
    }

    fn ask(&self, kind: u32, body: &Writer) -> Result<Vec<u8>> {
        self.0.answer(kind, CTX, &mut Reader::new(body.as_slice())).unwrap()
    }

    /// The worker asks for a call: whether anything was called.
    fn calls(&self, number: u64) -> bool {
        let mut body = Writer::new();
        body.u64(number);
        self.ask(GRAPH_CALL, &body).is_ok()
    }

    fn read(&self, number: u64, at: u64, len: u32) -> Result<Vec<u8>> {
        let mut body = Writer::new();
        body.u64(number);
        body.u64(at);
        body.u32(len);
        self.ask(GRAPH_READ, &body)
    }

    fn write(&self, number: u64, at: u64, bytes: &[u8]) -> bool {
        let mut body = Writer::new();
        body.u64(number);
        body.u64(at);
        body.fixed(bytes);
        self.ask(GRAPH_WRITE, &body).is_ok()
    }

    /// How many numbers there are.
    fn count(&self) -> usize {
        self.0.numbers.count()
    }
}

fn host(counter: &AtomicU64) -> NodeParams {
    NodeParams::Host(HostNode {
        function: add_one as unsafe extern "C" fn(*mut c_void) as usize as u64,
        data: core::ptr::from_ref(counter) as u64,
    })
}

/// A copy between device memory and these bytes.
fn copy(memory: &mut [u8], to_host: bool) -> NodeParams {
    let len = memory.len() as u64;
    let host =
        Place::Host(Rows { address: HostPtr::of(memory.as_mut_ptr()), pitch: len, height: 1 });
    let device = Place::Device(Rows { address: DevicePtr(4096), pitch: len, height: 1 });
    let (dst, src) = if to_host { (host, device) } else { (device, host) };
    NodeParams::Copy(CopyNode { ctx: ContextId(1), dst, src, extent: [len, 1, 1] })
}

/// The number that the worker has for the host's side of a copy.
fn number(params: &NodeParams) -> u64 {
    match params {
        NodeParams::Copy(
            CopyNode { dst: Place::Host(rows), .. } | CopyNode { src: Place::Host(rows), .. },
        ) => rows.address.0,
        other => panic!("not a copy: {other:?}"),
    }
}

#[test]
fn nothing_is_called_read_or_written_without_a_launch() {
    let (asked, counter) = (Asked::new(), AtomicU64::new(0));
    let (mut source, mut sink) = ([7u8; 8], [0u8; 8]);
    let call = asked.host(ObjectId(1), 10, &counter);
    let from = number(&asked.set(ObjectId(1), 11, copy(&mut source, false)));
    let to = number(&asked.set(ObjectId(1), 12, copy(&mut sink, true)));
    let nothing = |when: &str| {
        assert!(!asked.calls(call), "{when}");
        assert!(asked.read(from, 0, 8).is_err() && !asked.write(to, 0, &[1; 8]), "{when}");
    };
    nothing("in a graph");
    asked.made(ObjectId(2), ObjectId(1));
    nothing("in an executable");
    let launch = asked.launch(ObjectId(2), 5).unwrap();
    assert!(
        asked.read(to, 0, 1).is_err() && !asked.write(from, 0, &[9]),
        "each box has its direction"
    );
    assert!(asked.calls(call) && !asked.calls(call), "a launch calls it once");
    assert_eq!(asked.read(from, 0, 6).unwrap(), [7; 6]);
    assert!(asked.read(from, 0, 3).is_err(), "as many bytes as the copy has");
    assert_eq!(asked.read(from, 6, 2).unwrap(), [7; 2]);
    assert!(
        asked.write(to, 4, &[3; 4]) && asked.write(to, 0, &[2; 4]) && !asked.write(to, 0, &[4; 4])
    );
    assert!(asked.read(from, u64::MAX, 0).is_err() && !asked.write(to, 9, &[]));
    let next = asked.launch(ObjectId(2), 6).unwrap();
    assert!(asked.calls(call), "each launch has its own");
    drop(launch);
    assert_eq!(asked.read(from, 0, 8).unwrap(), [7; 8]);
    drop(next);
    nothing("after the launches");
    assert_eq!(
        (source, sink, counter.load(Ordering::Relaxed)),
        ([7; 8], [2, 2, 2, 2, 3, 3, 3, 3], 2)
    );
}

#[test]
fn a_launch_that_a_wait_covers_allows_nothing() {
    let (asked, counter) = (Asked::new(), AtomicU64::new(0));
    let call = asked.host(ObjectId(1), 10, &counter);
    asked.made(ObjectId(2), ObjectId(1));
    let (first, second) = (asked.launch(ObjectId(2), 5), asked.launch(ObjectId(2), 7));
    asked.waited(6);
    assert!(asked.calls(call) && !asked.calls(call), "the second one is under way");
    asked.waited(8);
    let third = asked.launch(ObjectId(2), 9);
    asked.waited(10);
    assert!(!asked.calls(call));
    drop((first, second, third));
    assert_eq!(counter.load(Ordering::Relaxed), 1);
}

#[test]
fn memory_that_the_program_gives_up_is_left_alone() {
    let (asked, mut memory) = (Asked::new(), [0u8; 16]);
    let (gone, stays) = memory.split_at_mut(8);
    let range = HostPtr::of(gone.as_ptr()).offset(7).range(1);
    let first = number(&asked.set(ObjectId(1), 10, copy(gone, true)));
    let second = number(&asked.set(ObjectId(1), 11, copy(stays, true)));
    asked.made(ObjectId(2), ObjectId(1));
    let _launch = asked.launch(ObjectId(2), 5);
    asked.0.gone(&range);
    assert!(!asked.write(first, 0, &[1; 8]) && asked.write(second, 0, &[1; 8]));
    assert_eq!(memory[..8], [0; 8]);
}

#[test]
fn a_loop_calls_as_often_as_it_runs_and_a_branch_once() {
    let (asked, counters) = (Asked::new(), [const { AtomicU64::new(0) }; 3]);
    let kinds = [CUgraphConditionalNodeType::CU_GRAPH_COND_TYPE_IF, WHILE];
    for (inner, kind) in (2..).zip(kinds) {
        let body = ConditionalNode {
            ctx: ContextId(1),
            handle: 0,
            kind: kind.0,
            bodies: vec![ObjectId(inner)],
        };
        asked.set(ObjectId(1), inner, NodeParams::Conditional(body));
    }
    let (branch, looped) =
        (asked.host(ObjectId(2), 20, &counters[0]), asked.host(ObjectId(3), 30, &counters[1]));
    // What is in a graph inside the loop's body runs as often.
    asked.set(ObjectId(3), 31, NodeParams::Child { graph: ObjectId(4), moved: true });
    let deeper = asked.host(ObjectId(4), 40, &counters[2]);
    asked.made(ObjectId(5), ObjectId(1));
    let launch = asked.launch(ObjectId(5), 1);
    assert!(asked.calls(branch) && !asked.calls(branch));
    assert!((0..1000).all(|_| asked.calls(looped) && asked.calls(deeper)));
    drop(launch);
    assert!(!asked.calls(looped) && !asked.calls(deeper));
}

#[test]
fn nodes_that_need_the_same_are_counted() {
    let (asked, counter) = (Asked::new(), AtomicU64::new(0));
    let number = asked.host(ObjectId(1), 10, &counter);
    assert_eq!(asked.host(ObjectId(1), 11, &counter), number, "the same function has one number");
    asked.set(ObjectId(4), 40, NodeParams::Child { graph: ObjectId(1), moved: false });
    assert_eq!(asked.host(ObjectId(4), 41, &counter), number);
    asked.made(ObjectId(5), ObjectId(4));
    let _launch = asked.launch(ObjectId(5), 1);
    assert!((0..3).all(|_| asked.calls(number)) && !asked.calls(number));
}

#[test]
fn numbers_go_with_the_last_that_uses_them() {
    let (asked, counter) = (Asked::new(), AtomicU64::new(0));
    let number = asked.host(ObjectId(1), 10, &counter);
    assert_eq!(asked.host(ObjectId(2), 20, &counter), number, "the same function has one number");
    asked.made(ObjectId(3), ObjectId(1));
    asked.0.forget_graph(ObjectId(1));
    asked.0.forget_graph(ObjectId(2));
    assert_eq!(asked.count(), 1, "the executable uses it");
    let under_way = asked.launch(ObjectId(3), 1).unwrap();
    asked.0.forget_exec(ObjectId(3));
    assert!(asked.calls(number), "a launch is under way");
    drop(under_way);
    assert!(!asked.calls(number) && asked.count() == 0);
}

#[test]
fn days_of_graphs_leave_nothing() {
    let (asked, counters) = (Asked::new(), [const { AtomicU64::new(0) }; 100]);
    for (name, counter) in (1..).step_by(2).zip(&counters) {
        let number = asked.host(ObjectId(name), 1, counter);
        asked.set(ObjectId(name), 2, copy(&mut [0; 8], false));
        asked.made(ObjectId(name + 1), ObjectId(name));
        let under_way = asked.launch(ObjectId(name + 1), 1);
        assert!(asked.calls(number));
        asked.0.forget_graph(ObjectId(name));
        asked.0.forget_exec(ObjectId(name + 1));
        drop(under_way);
        assert_eq!(asked.count(), 0);
    }
    let state = asked.0.state();
    assert!(state.graphs.is_empty() && state.execs.is_empty() && !asked.1.is_any());
}

#[test]
fn other_parameters_of_a_node_let_go_of_the_old_ones() {
    let (asked, counters) = (Asked::new(), [const { AtomicU64::new(0) }; 3]);
    let old = asked.host(ObjectId(1), 10, &counters[0]);
    asked.made(ObjectId(2), ObjectId(1));
    let new = asked.host(ObjectId(1), 10, &counters[1]);
    let launched = |numbers: [u64; 2]| {
        let _launch = asked.launch(ObjectId(2), 1);
        numbers.map(|number| asked.calls(number))
    };
    assert_eq!(launched([old, new]), [true, false], "the executable has the old ones");
    asked.0.perhaps_made(ObjectId(2), asked.0.of_graph(ObjectId(1)));
    assert_eq!(launched([old, new]), [true, true]);
    let under_way = asked.launch(ObjectId(2), 1);
    asked.made(ObjectId(2), ObjectId(1));
    assert!(asked.calls(old), "the launch has them");
    drop(under_way);
    assert_eq!(launched([old, new]), [false, true]);
    let NodeParams::Host(last) =
        asked.0.set_exec_node(ObjectId(2), 10, host(&counters[2]), || Ok(())).unwrap()
    else {
        panic!("another kind of node");
    };
    assert_eq!(launched([new, last.function]), [false, true]);
    assert_eq!(asked.count(), 2, "the graph has the one before");
    asked.0.set_exec_node(ObjectId(2), 10, copy(&mut [0; 8], false), || Ok(())).unwrap();
    asked.0.remove_node(ObjectId(1), 10);
    asked.made(ObjectId(2), ObjectId(1));
    assert!(asked.launch(ObjectId(2), 1).is_none() && asked.count() == 0);
}

#[test]
fn graphs_inside_others_count() {
    let (asked, counters) = (Asked::new(), [const { AtomicU64::new(0) }; 3]);
    let copied = asked.host(ObjectId(1), 10, &counters[0]);
    asked.set(ObjectId(4), 40, NodeParams::Child { graph: ObjectId(1), moved: false });
    asked.0.forget_graph(ObjectId(1));
    asked.set(ObjectId(4), 41, NodeParams::Child { graph: ObjectId(2), moved: true });
    let body = ConditionalNode { ctx: ContextId(1), handle: 0, kind: 0, bodies: vec![ObjectId(3)] };
    asked.set(ObjectId(2), 20, NodeParams::Conditional(body));
    // What changes in those that are inside themselves is the outer graph's.
    let (moved, inner) =
        (asked.host(ObjectId(2), 21, &counters[1]), asked.host(ObjectId(3), 30, &counters[2]));
    asked.made(ObjectId(5), ObjectId(4));
    [4, 3, 2].into_iter().for_each(|graph| asked.0.forget_graph(ObjectId(graph)));
    let launch = asked.launch(ObjectId(5), 1);
    assert!([copied, moved, inner].into_iter().all(|number| asked.calls(number)));
    asked.0.forget_exec(ObjectId(5));
    drop(launch);
    assert_eq!(asked.count(), 0);
}
