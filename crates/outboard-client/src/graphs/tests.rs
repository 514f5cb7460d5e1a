use core::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};

use outboard_wire::Writer;
use outboard_wire::graph::ConditionalNode;

use super::*;

unsafe extern "C" fn add_one(data: *mut c_void) {
    // SAFETY: the tests give a counter.
    unsafe { &*data.cast::<AtomicU64>() }.fetch_add(1, Ordering::Relaxed);
}

/// Hosts that hear requests in no way: the tests ask them.
struct Asked(GraphHosts);

impl Asked {
    fn new() -> Asked {
        Asked(GraphHosts::default())
    }

    /// Puts parameters into a node; what the worker is told.
    fn set(&self, graph: u64, node: u64, params: NodeParams) -> NodeParams {
        self.0.set_node(graph, node, params, || Ok(())).unwrap()
    }

    /// Puts a host node into a graph; its number.
    fn host(&self, graph: u64, node: u64, counter: &AtomicU64) -> u64 {
        let NodeParams::Host(host) = self.set(graph, node, host(counter)) else { panic!("another kind of node") };
        host.function
    }

    /// Makes an executable.
    fn made(&self, exec: u64, graph: u64) {
        self.0.made(exec, self.0.of_graph(graph));
    }

    /// The worker asks for a call: whether anything was called.
    fn calls(&self, number: u64) -> bool {
        let mut body = Writer::new();
        body.u64(number);
        self.0.answer(GRAPH_CALL, ContextId(1), &mut Reader::new(body.as_slice())).unwrap().is_ok()
    }

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

#[test]
fn numbers_go_with_the_last_that_uses_them() {
    let (asked, counter) = (Asked::new(), AtomicU64::new(0));
    let number = asked.host(1, 10, &counter);
    assert_eq!(asked.host(2, 20, &counter), number, "the same function has one number");
    asked.made(3, 1);
    asked.0.forget_graph(1);
    asked.0.forget_graph(2);
    assert!(asked.calls(number), "the executable uses it");
    let under_way = asked.0.of_exec(3).unwrap();
    asked.0.forget_exec(3);
    assert!(asked.calls(number), "a launch is under way");
    drop(under_way);
    assert!(!asked.calls(number) && asked.count() == 0);
    assert_eq!(counter.load(Ordering::Relaxed), 2);
}

#[test]
fn days_of_graphs_leave_nothing() {
    let (asked, counters) = (Asked::new(), [const { AtomicU64::new(0) }; 100]);
    for (name, counter) in (1..).step_by(2).zip(&counters) {
        let number = asked.host(name, 1, counter);
        let rows = Rows { address: counter.as_ptr() as u64, pitch: 8, height: 1 };
        let copy = CopyNode { ctx: 1, dst: Place::Device(rows), src: Place::Host(rows), extent: [8, 1, 1] };
        asked.set(name, 2, NodeParams::Copy(copy));
        asked.made(name + 1, name);
        let under_way = asked.0.of_exec(name + 1);
        assert!(asked.calls(number));
        asked.0.forget_graph(name);
        asked.0.forget_exec(name + 1);
        drop(under_way);
        assert_eq!(asked.count(), 0);
    }
    let state = asked.0.state();
    assert!(state.graphs.is_empty() && state.execs.is_empty());
}

#[test]
fn other_parameters_of_a_node_let_go_of_the_old_ones() {
    let (asked, counters) = (Asked::new(), [const { AtomicU64::new(0) }; 3]);
    let old = asked.host(1, 10, &counters[0]);
    asked.made(2, 1);
    let new = asked.host(1, 10, &counters[1]);
    assert!(asked.calls(old), "the executable has the old ones");
    let uses = asked.0.of_graph(1);
    asked.0.perhaps_made(2, &uses);
    assert!(asked.calls(old) && asked.calls(new));
    let under_way = asked.0.of_exec(2);
    asked.0.made(2, uses);
    assert!(asked.calls(old), "a launch may have them, too");
    drop(under_way);
    assert!(!asked.calls(old) && asked.calls(new));
    asked.0.set_exec_node(2, host(&counters[2]), || Ok(())).unwrap();
    assert_eq!(asked.count(), 2);
    asked.0.remove_node(1, 10);
    asked.made(2, 1);
    assert!(asked.0.of_exec(2).is_none() && asked.count() == 0);
}

#[test]
fn graphs_inside_others_count() {
    let (asked, counters) = (Asked::new(), [const { AtomicU64::new(0) }; 3]);
    let copied = asked.host(1, 10, &counters[0]);
    asked.set(4, 40, NodeParams::Child { graph: 1, moved: false });
    asked.0.forget_graph(1);
    asked.set(4, 41, NodeParams::Child { graph: 2, moved: true });
    let body = ConditionalNode { ctx: 1, handle: 0, kind: 0, bodies: vec![3] };
    asked.set(2, 20, NodeParams::Conditional(body));
    // What changes in those that are inside themselves is the outer graph's.
    let (moved, inner) = (asked.host(2, 21, &counters[1]), asked.host(3, 30, &counters[2]));
    asked.made(5, 4);
    [4, 3, 2].into_iter().for_each(|graph| asked.0.forget_graph(graph));
    assert!([copied, moved, inner].into_iter().all(|number| asked.calls(number)));
    asked.0.forget_exec(5);
    assert_eq!(asked.count(), 0);
}
