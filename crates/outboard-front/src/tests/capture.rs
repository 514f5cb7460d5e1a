//! Captures: what is queued becomes a graph, and the back end hears of it when an executable is
//! made.

use core::ffi::c_void;
use core::ptr::null_mut;

use outboard_abi::{
    CUgraph, CUgraphNode, CUgraphNodeType as Type, CUresult, CUstream, CUstreamCaptureMode as Mode,
    CUstreamCaptureStatus as Status,
};

use super::program::{Program, nothing, two_sides};
use super::*;
use crate::backend::Result;

const GLOBAL: Mode = Mode::CU_STREAM_CAPTURE_MODE_GLOBAL;
const THREAD_LOCAL: Mode = Mode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
const RELAXED: Mode = Mode::CU_STREAM_CAPTURE_MODE_RELAXED;

unsafe extern "C" fn host_function(_: *mut c_void) {}

fn begin(program: Program, stream: CUstream, mode: Mode) {
    call!(program, cuStreamBeginCapture_v2, stream, mode).expect("it does not capture yet");
}

fn end(program: Program, stream: CUstream) -> Result<CUgraph> {
    let mut graph = null_mut();
    call!(program, cuStreamEndCapture, stream, &raw mut graph).map(|()| graph)
}

fn status(program: Program, stream: CUstream) -> Status {
    let mut status = nothing();
    call!(program, cuStreamIsCapturing, stream, &raw mut status).expect("the stream is there");
    status
}

fn nodes(program: Program, graph: CUgraph) -> Vec<CUgraphNode> {
    let mut count = 64;
    let mut nodes = vec![null_mut(); count];
    call!(program, cuGraphGetNodes, graph, nodes.as_mut_ptr(), &raw mut count)
        .expect("it is a graph");
    nodes.truncate(count);
    nodes
}

fn types(program: Program, nodes: &[CUgraphNode]) -> Vec<Type> {
    let of = |node: &CUgraphNode| {
        let mut kind = nothing();
        call!(program, cuGraphNodeGetType, *node, &raw mut kind).expect("it is a node");
        kind
    };
    nodes.iter().map(of).collect()
}

/// The edges, by the places of their nodes.
fn edges(program: Program, graph: CUgraph) -> Vec<(usize, usize)> {
    let mut count = 64;
    let (mut from, mut to) = (vec![null_mut(); count], vec![null_mut(); count]);
    call!(program, cuGraphGetEdges, graph, from.as_mut_ptr(), to.as_mut_ptr(), &raw mut count)
        .expect("it is a graph");
    let nodes = nodes(program, graph);
    let place = |node: &CUgraphNode| {
        nodes.iter().position(|known| known == node).expect("edges join its nodes")
    };
    let mut edges: Vec<_> =
        from.iter().zip(&to).take(count).map(|(from, to)| (place(from), place(to))).collect();
    edges.sort_unstable();
    edges
}

/// Captures a kernel, then a fill in a second stream next to a copy in the first, which join before
/// a host function.
fn capture_diamond(program: Program) -> CUgraph {
    let (first, second, memory, function) =
        (program.stream(), program.stream(), program.memory(256), program.function());
    let (fork, join) = (program.event(), program.event());
    let source = Box::leak(Box::new([0_u8; 64])).as_ptr().cast();
    let mut graph = null_mut();
    let asked = program.methods_of(|| {
        begin(program, first, GLOBAL);
        program.launch(function, first).expect("it is captured");
        call!(program, cuEventRecord, fork, first).expect("it is captured");
        call!(program, cuStreamWaitEvent, second, fork, 0).expect("it is captured");
        call!(program, cuMemsetD8Async, memory, 1, 64, second).expect("it is captured");
        call!(program, cuEventRecord, join, second).expect("it is captured");
        call!(program, cuMemcpyHtoDAsync_v2, memory + 128, source, 64, first)
            .expect("it is captured");
        call!(program, cuStreamWaitEvent, first, join, 0).expect("it is captured");
        call!(program, cuLaunchHostFunc, first, Some(host_function), null_mut())
            .expect("it is captured");
        assert_eq!(
            [status(program, first), status(program, second)],
            [Status::CU_STREAM_CAPTURE_STATUS_ACTIVE; 2]
        );
        graph = end(program, first).expect("it is joined");
    });
    assert!(asked.is_empty(), "{asked:?}");
    assert_eq!(
        [status(program, first), status(program, second)],
        [Status::CU_STREAM_CAPTURE_STATUS_NONE; 2]
    );
    graph
}

#[test]
fn what_is_queued_becomes_nodes_and_reaches_nobody() {
    let program = Program::current();
    let graph = capture_diamond(program);
    assert_eq!(
        types(program, &nodes(program, graph)),
        [
            Type::CU_GRAPH_NODE_TYPE_KERNEL,
            Type::CU_GRAPH_NODE_TYPE_MEMSET,
            Type::CU_GRAPH_NODE_TYPE_MEMCPY,
            Type::CU_GRAPH_NODE_TYPE_HOST
        ]
    );
    assert_eq!(edges(program, graph), [(0, 1), (0, 2), (1, 3), (2, 3)]);
}

#[test]
fn the_back_end_is_told_once_and_in_order() {
    let program = Program::current();
    let graph = capture_diamond(program);
    let stream = program.stream();
    let mut exec = null_mut();
    let asked = program.asked_by(|| {
        exec = ask!(program, cuGraphInstantiateWithFlags, graph, 0).expect("nothing fails");
        call!(program, cuGraphLaunch, exec, stream).expect("nothing fails");
    });
    let methods: Vec<_> =
        asked.iter().map(|call| call.split('(').next().unwrap_or_default()).collect();
    assert_eq!(methods, ["graph_create", "graph_edit", "graph_instantiate", "graph_launch"]);
    // Each node behind those that it waits for.
    let mut rest = asked[1].as_str();
    for node in nodes(program, graph) {
        let added = format!("Add {{ node: {},", node as u64);
        rest = rest.split_once(&added).unwrap_or_else(|| panic!("{added} is missing in {rest}")).1;
    }
    let again = program.methods_of(|| {
        ask!(program, cuGraphInstantiateWithFlags, graph, 0).expect("nothing fails");
    });
    assert_eq!(again, ["graph_instantiate"], "what the back end knows it is not told again");
    let end = program.methods_of(|| {
        call!(program, cuGraphExecDestroy, exec).expect("nothing fails");
        call!(program, cuGraphDestroy, graph).expect("nothing fails");
    });
    assert_eq!(end, ["graph_exec_destroy", "graph_destroy"]);
}

/// Mode of the capture, mode of the caller, whether it is another thread that calls: whether an
/// allocation spoils the capture.
const MODES: [(Mode, Mode, bool, bool); 8] = [
    (GLOBAL, GLOBAL, false, true),
    (GLOBAL, GLOBAL, true, true),
    (GLOBAL, THREAD_LOCAL, true, false),
    (GLOBAL, RELAXED, false, false),
    (THREAD_LOCAL, GLOBAL, false, true),
    (THREAD_LOCAL, GLOBAL, true, false),
    (RELAXED, GLOBAL, false, false),
    (RELAXED, GLOBAL, true, false),
];

#[test]
fn an_unsafe_call_spoils_a_capture_as_the_modes_say() {
    for (index, (of_capture, of_caller, elsewhere, spoils)) in MODES.into_iter().enumerate() {
        let run = move || {
            let program = Program::current();
            let stream = program.stream();
            begin(program, stream, of_capture);
            let allocate = move || {
                let mut mode = of_caller;
                call!(program, cuThreadExchangeStreamCaptureMode, &raw mut mode)
                    .expect("it is a mode");
                assert_eq!(mode, GLOBAL, "what a thread begins with");
                ask!(program, cuMemAlloc_v2, 64).map(drop)
            };
            let in_thread = move || {
                program.make_current(0);
                allocate()
            };
            let mut outcome = Ok(());
            let asked = program.methods_of(|| {
                outcome = if elsewhere {
                    std::thread::spawn(in_thread).join().expect("it works")
                } else {
                    allocate()
                };
            });
            let (wanted, at_end) = match spoils {
                true => (
                    Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED),
                    Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED),
                ),
                false => (Ok(()), Ok(())),
            };
            assert_eq!(outcome, wanted, "row {index}");
            assert_eq!(asked.len(), usize::from(!spoils), "row {index}: {asked:?}");
            assert_eq!(end(program, stream).map(drop), at_end, "row {index}");
            assert_eq!(
                ask!(program, cuMemAlloc_v2, 64).map(drop),
                Ok(()),
                "row {index}: it is over"
            );
        };
        assert!(std::thread::spawn(run).join().is_ok(), "row {index}");
    }
}

#[test]
fn a_question_to_a_stream_that_captures_spoils_it() {
    type Question = fn(Program, CUstream) -> Result<()>;
    let unsupported = CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    let table: [(Question, CUresult); 4] = [
        (|program, stream| call!(program, cuStreamSynchronize, stream), unsupported),
        (|program, stream| call!(program, cuStreamQuery, stream), unsupported),
        (|program, _| call!(program, cuCtxSynchronize), unsupported),
        (
            |program, _| call!(program, cuStreamSynchronize, null_mut()),
            CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
        ),
    ];
    let program = Program::current();
    for (index, (question, refusal)) in table.into_iter().enumerate() {
        let stream = program.stream();
        begin(program, stream, RELAXED);
        let asked = program
            .methods_of(|| assert_eq!(question(program, stream), Err(refusal), "row {index}"));
        assert!(asked.is_empty(), "row {index}: {asked:?}");
        assert_eq!(
            status(program, stream),
            Status::CU_STREAM_CAPTURE_STATUS_INVALIDATED,
            "row {index}"
        );
        let before = program.process.counts();
        assert_eq!(
            end(program, stream),
            Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED),
            "row {index}"
        );
        assert_ne!(program.process.counts(), before, "the graph goes with it");
        assert_eq!(question(program, stream), Ok(()), "row {index}: it is over");
    }
}

#[test]
fn a_capture_is_of_its_process() {
    let (capturing, other) = (Program::ready(), Program::ready());
    let (side, other_side) = two_sides();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            capturing.make_current(0);
            let (stream, function) = (capturing.stream(), capturing.function());
            begin(capturing, stream, GLOBAL);
            capturing.launch(function, stream).expect("it is captured");
            side.meet();
            // The other one works.
            side.meet();
            let graph = end(capturing, stream).expect("nobody has spoilt it");
            assert_eq!(nodes(capturing, graph).len(), 1);
        });
        scope.spawn(move || {
            other.make_current(0);
            let (stream, function) = (other.stream(), other.function());
            other_side.meet();
            let asked = other.methods_of(|| {
                other.memory(64);
                assert_eq!(status(other, stream), Status::CU_STREAM_CAPTURE_STATUS_NONE);
                other.launch(function, stream).expect("it does not capture");
                other.launch(function, null_mut()).expect("nothing captures");
                call!(other, cuCtxSynchronize).expect("nothing captures");
            });
            other_side.meet();
            assert_eq!(asked, ["memory_alloc", "launch", "launch", "context_synchronize"]);
        });
    });
}
