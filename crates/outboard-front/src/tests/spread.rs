//! Graphs whose nodes are on two servers: what each is told.

use core::ffi::c_void;
use core::ptr::null_mut;

use outboard_abi::{
    CUDA_KERNEL_NODE_PARAMS, CUDA_MEM_ALLOC_NODE_PARAMS, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS,
    CUdeviceptr, CUgraph, CUgraphExec, CUgraphNode, CUmemorytype, CUresult, CUstream,
};

use super::program::{IMAGE, nothing};
use super::servers::{Crossed, Machine};
use super::*;
use crate::backend::Result;

/// A program with memory and a stream on device 0, of the first server, and on device 2, of the
/// second one.
struct Two {
    machine: Machine,
    memory: [CUdeviceptr; 2],
    streams: [CUstream; 2],
}

const DEVICES: [i32; 2] = [0, 2];

impl Two {
    fn new() -> Two {
        let machine = Machine::ready();
        let made = DEVICES.map(|device| {
            machine.make_current(device);
            let memory = ask!(machine, cuMemAlloc_v2, 4096).expect("nothing fails");
            (memory, ask!(machine, cuStreamCreate, 0).expect("nothing fails"))
        });
        let [(one, first), (other, second)] = made;
        Two { machine, memory: [one, other], streams: [first, second] }
    }

    fn graph(&self) -> CUgraph {
        ask!(self.machine, cuGraphCreate, 0).expect("nothing fails")
    }

    /// A node behind others.
    fn fill(&self, graph: CUgraph, place: usize, before: &[CUgraphNode]) -> CUgraphNode {
        self.machine.make_current(DEVICES[place]);
        let fill = self.filling(place, 1);
        let (first, count) = (before.as_ptr(), before.len());
        let (fill, ctx) = (&raw const fill, null_mut());
        ask!(self.machine, cuGraphAddMemsetNode, graph, first, count, fill, ctx)
            .expect("nothing fails")
    }

    fn filling(&self, place: usize, value: u32) -> CUDA_MEMSET_NODE_PARAMS {
        let mut fill: CUDA_MEMSET_NODE_PARAMS = nothing();
        (fill.dst, fill.value, fill.elementSize) = (self.memory[place], value, 1);
        (fill.width, fill.height) = (64, 1);
        fill
    }

    fn copying(&self, to: usize, from: usize) -> CUDA_MEMCPY3D {
        let mut copy: CUDA_MEMCPY3D = nothing();
        copy.srcMemoryType = CUmemorytype::CU_MEMORYTYPE_DEVICE;
        copy.dstMemoryType = CUmemorytype::CU_MEMORYTYPE_DEVICE;
        (copy.srcDevice, copy.dstDevice) = (self.memory[from], self.memory[to] + 1024);
        (copy.WidthInBytes, copy.Height, copy.Depth) = (64, 1, 1);
        copy
    }

    fn copy(
        &self,
        graph: CUgraph,
        (to, from): (usize, usize),
        before: &[CUgraphNode],
    ) -> CUgraphNode {
        self.machine.make_current(DEVICES[from]);
        let copy = self.copying(to, from);
        let (first, count) = (before.as_ptr(), before.len());
        let (copy, ctx) = (&raw const copy, null_mut());
        ask!(self.machine, cuGraphAddMemcpyNode, graph, first, count, copy, ctx)
            .expect("nothing fails")
    }

    /// A fill on the first server, a copy to the second one, and a fill there.
    fn chain(&self) -> (CUgraph, [CUgraphNode; 3]) {
        let graph = self.graph();
        let fill = self.fill(graph, 0, &[]);
        let copy = self.copy(graph, (1, 0), &[fill]);
        (graph, [fill, copy, self.fill(graph, 1, &[copy])])
    }

    fn instantiate(&self, graph: CUgraph) -> Result<CUgraphExec> {
        ask!(self.machine, cuGraphInstantiateWithFlags, graph, 0)
    }

    fn launch(&self, exec: CUgraphExec, place: usize) -> Result<()> {
        call!(self.machine, cuGraphLaunch, exec, self.streams[place])
    }

    fn counts(&self) -> [(&'static str, usize); 19] {
        self.machine.process.counts()
    }

    /// What was noted of streams that wait, and of what they wait for.
    fn crossed(&self) -> [Vec<String>; 2] {
        self.machine.servers.map(|server| Crossed::of(server).take(0))
    }
}

#[test]
fn each_server_is_told_of_its_own_nodes() {
    let two = Two::new();
    let before = two.counts();
    let (graph, _) = two.chain();
    let asked = two.machine.asked_by(|| {
        let exec = two.instantiate(graph).expect("nothing fails");
        call!(two.machine, cuGraphExecDestroy, exec).expect("it is there");
    });
    let made = ["graph_create", "graph_edit", "graph_instantiate", "event_create"];
    let gone = ["event_destroy", "graph_exec_destroy"];
    // The first server has a stream for the copy besides.
    let first = [
        &["stream_create", "stream_create"][..],
        &made,
        &["event_create"],
        &gone,
        &["event_destroy", "stream_destroy", "stream_destroy", "graph_destroy"],
    ];
    let second = [&["stream_create"][..], &made, &gone, &["stream_destroy", "graph_destroy"]];
    assert_eq!(asked, [first.concat(), second.concat()]);
    call!(two.machine, cuGraphDestroy, graph).expect("it is there");
    assert_eq!(two.counts(), before);
}

#[test]
fn a_launch_queues_all_and_waits_for_nothing() {
    let two = Two::new();
    let exec = two.instantiate(two.chain().0).expect("nothing fails");
    // In a stream of the first piece's context, that piece is in the stream itself.
    let asked = two.machine.asked_by(|| two.launch(exec, 0).expect("nothing fails"));
    let first = ["graph_launch", "event_record", "stream_wait_event", "event_record"];
    assert_eq!(asked, [first.to_vec(), vec!["graph_launch", "event_record"]]);
    // The copy waits for its stream, the second piece for the copy, the stream for the second
    // piece.
    let holds = ["stream", "hold", "event", "hold"].map(str::to_owned).to_vec();
    let held = ["hold", "hold", "event"].map(str::to_owned).to_vec();
    assert_eq!(two.crossed(), [holds, held]);
    // In another stream, it comes behind the launch before.
    let asked = two.machine.asked_by(|| two.launch(exec, 1).expect("nothing fails"));
    let first = ["graph_launch", "event_record", "stream_wait_event", "event_record"];
    let second =
        ["stream_wait_event", "event_create", "event_record", "graph_launch", "event_record"];
    assert_eq!(asked, [first.to_vec(), second.to_vec()]);
}

#[test]
fn a_graph_of_one_server_is_launched_from_another_one() {
    let two = Two::new();
    let graph = two.graph();
    two.fill(graph, 0, &[]);
    let made = two.machine.asked_by(|| assert!(two.instantiate(graph).is_ok()));
    assert_eq!(made, [vec!["graph_create", "graph_edit", "graph_instantiate"], vec![]]);
    let exec = two.instantiate(graph).expect("nothing fails");
    let own = two.machine.asked_by(|| two.launch(exec, 0).expect("nothing fails"));
    assert_eq!(own, [vec!["graph_launch"], vec![]], "in a stream of its server as ever");
    let other = two.machine.asked_by(|| two.launch(exec, 1).expect("nothing fails"));
    let first = ["stream_create", "event_create", "graph_launch", "event_record"];
    assert_eq!(other, [first.to_vec(), vec!["event_create", "event_record"]]);
    let gone = two.machine.asked_by(|| {
        call!(two.machine, cuGraphExecDestroy, exec).expect("it is there");
    });
    let first = ["graph_exec_destroy", "event_destroy", "stream_destroy"];
    assert_eq!(gone, [first.to_vec(), vec!["event_destroy"]]);
}

#[test]
fn what_cannot_be_made_leaves_nothing_behind() {
    let two = Two::new();
    let (graph, _) = two.chain();
    let before = two.counts();
    let lost = CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE;
    for (place, method, nth) in [
        (0, "stream_create", 2),
        (1, "stream_create", 2),
        (1, "graph_instantiate", 1),
        (1, "event_create", 1),
    ] {
        let server = two.machine.servers[place];
        let so_far = server.calls().iter().filter(|call| call.method == method).count();
        let nth = if method == "stream_create" { so_far + 1 } else { so_far + nth };
        server.fail(method, nth, lost);
        assert_eq!(two.instantiate(graph), Err(lost), "{method} of {place}");
        assert_eq!(two.counts(), before, "{method} of {place}");
        for server in two.machine.servers {
            let count = |method| server.calls().iter().filter(|call| call.method == method).count();
            let made = count("graph_create");
            assert_eq!(count("graph_destroy"), made, "{method} of {place}");
        }
    }
    assert!(two.instantiate(graph).is_ok());
}

#[test]
fn a_launch_that_fails_is_over_when_its_stream_goes_on() {
    let two = Two::new();
    let exec = two.instantiate(two.chain().0).expect("nothing fails");
    let lost = CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE;
    two.machine.servers[1].fail("graph_launch", 1, lost);
    let asked = two.machine.asked_by(|| assert_eq!(two.launch(exec, 0), Err(lost)));
    let queued = ["graph_launch", "event_record", "stream_wait_event", "event_record"];
    // What it has queued is recorded, and its stream waits for that.
    let after = ["event_record", "event_record", "stream_wait_event"];
    let mut first = asked[0][queued.len()..].to_vec();
    first.sort_unstable();
    assert_eq!((&asked[0][..queued.len()], &first[..]), (&queued[..], &after[..]));
    assert_eq!(two.launch(exec, 0), Ok(()));
}

#[test]
fn changes_reach_the_server_of_the_node() {
    let two = Two::new();
    let (graph, [one, copy, other]) = two.chain();
    let exec = two.instantiate(graph).expect("nothing fails");
    for (place, node) in [(0, one), (1, other)] {
        two.machine.make_current(DEVICES[place]);
        let fill = two.filling(place, 7);
        let asked = two.machine.asked_by(|| {
            let fill = &raw const fill;
            call!(two.machine, cuGraphExecMemsetNodeSetParams, exec, node, fill, null_mut())
                .expect("nothing fails");
            call!(two.machine, cuGraphNodeSetEnabled, exec, node, 0).expect("nothing fails");
        });
        let mut wanted = [vec![], vec![]];
        wanted[place] = vec!["graph_exec_set", "graph_exec_enable"];
        assert_eq!(asked, wanted);
    }
    // A copy between servers is no server's node.
    two.machine.make_current(0);
    let set = |copying: CUDA_MEMCPY3D| {
        let copying = &raw const copying;
        call!(two.machine, cuGraphExecMemcpyNodeSetParams, exec, copy, copying, null_mut())
    };
    let asked = two.machine.asked_by(|| {
        let mut copying = two.copying(1, 0);
        copying.dstDevice += 64;
        set(copying).expect("nothing fails");
        call!(two.machine, cuGraphNodeSetEnabled, exec, copy, 0).expect("nothing fails");
    });
    assert_eq!(asked, [Vec::<&str>::new(), vec![]]);
    for (to, from) in [(0, 1), (0, 0), (1, 1)] {
        two.machine.refuses("another way", || set(two.copying(to, from)));
    }
    two.launch(exec, 0).expect("nothing fails");
    let [first, second] = two.crossed();
    assert!(!first.contains(&"stream".to_owned()), "the copy is off: {first:?} {second:?}");
}

#[test]
fn an_update_is_each_server_s_of_its_piece() {
    let two = Two::new();
    let exec = two.instantiate(two.chain().0).expect("nothing fails");
    let before = two.counts();
    let (graph, _) = two.chain();
    let mut info = nothing();
    let asked = two.machine.asked_by(|| {
        call!(two.machine, cuGraphExecUpdate_v2, exec, graph, &raw mut info).expect("it is alike");
    });
    let piece = ["graph_create", "graph_edit", "graph_exec_update", "graph_destroy"];
    assert_eq!(asked, [piece, piece]);
    call!(two.machine, cuGraphDestroy, graph).expect("it is there");
    assert_eq!(two.counts(), before);
    // The other way round it is another graph.
    let graph = two.graph();
    let fill = two.fill(graph, 1, &[]);
    let copy = two.copy(graph, (0, 1), &[fill]);
    two.fill(graph, 0, &[copy]);
    let asked = two.machine.asked_by(|| {
        let updated = call!(two.machine, cuGraphExecUpdate_v2, exec, graph, &raw mut info);
        assert_eq!(updated, Err(CUresult::CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE));
    });
    assert_eq!(asked, [Vec::<&str>::new(), vec![]]);
}

#[test]
fn a_capture_takes_in_streams_of_another_server() {
    let two = Two::new();
    let machine = &two.machine;
    let event = |place: usize| {
        machine.make_current(DEVICES[place]);
        ask!(machine, cuEventCreate, 0).expect("nothing fails")
    };
    let (forked, joined) = (event(0), event(1));
    let asked = machine.asked_by(|| {
        call!(machine, cuStreamBeginCapture, two.streams[0]).expect("nothing fails");
        call!(machine, cuEventRecord, forked, two.streams[0]).expect("nothing fails");
        call!(machine, cuStreamWaitEvent, two.streams[1], forked, 0).expect("it joins");
        let [here, there] = two.memory;
        call!(machine, cuMemcpyDtoDAsync_v2, there, here, 64, two.streams[1]).expect("captured");
        call!(machine, cuMemsetD8Async, there, 1, 64, two.streams[1]).expect("captured");
        call!(machine, cuEventRecord, joined, two.streams[1]).expect("nothing fails");
        call!(machine, cuStreamWaitEvent, two.streams[0], joined, 0).expect("it joins");
        let mut graph = null_mut();
        call!(machine, cuStreamEndCapture, two.streams[0], &raw mut graph).expect("all are joined");
        let mut count = 0;
        call!(machine, cuGraphGetNodes, graph, null_mut(), &raw mut count).expect("it is there");
        assert_eq!(count, 2);
        let exec = two.instantiate(graph).expect("nothing fails");
        call!(machine, cuGraphExecDestroy, exec).expect("it is there");
    });
    // The copy is made in a stream of the context in which it was captured.
    let count = |asked: &[&str]| asked.iter().filter(|one| **one == "stream_create").count();
    assert_eq!(asked.map(|asked| count(&asked)), [0, 2]);
}

/// Whichever context a copy's node names, the server that has the memory makes it.
#[test]
fn a_copy_is_made_where_its_memory_is() {
    let two = Two::new();
    let graph = two.graph();
    two.machine.make_current(0);
    let copy = two.copying(1, 1);
    let (none, copy) = (core::ptr::null(), &raw const copy);
    ask!(two.machine, cuGraphAddMemcpyNode, graph, none, 0, copy, null_mut())
        .expect("nothing fails");
    let asked = two.machine.asked_by(|| {
        let exec = two.instantiate(graph).expect("nothing fails");
        two.launch(exec, 1).expect("nothing fails");
    });
    let made = ["stream_create", "graph_create", "graph_edit", "graph_instantiate"];
    let launched = ["event_create", "graph_launch", "event_record"];
    assert_eq!(asked, [vec![], [&made[..], &launched].concat()]);
}

impl Two {
    /// A node that allocates on the device of a place, which must be current.
    fn allocate(
        &self,
        graph: CUgraph,
        place: usize,
        before: &[CUgraphNode],
    ) -> Result<(CUgraphNode, CUdeviceptr)> {
        self.machine.make_current(DEVICES[place]);
        let mut allocation: CUDA_MEM_ALLOC_NODE_PARAMS = nothing();
        let pool = &mut allocation.poolProps;
        pool.allocType = outboard_abi::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        pool.location.type_ = outboard_abi::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
        pool.location.id = DEVICES[place];
        allocation.bytesize = 64;
        let (first, count, memory) = (before.as_ptr(), before.len(), &raw mut allocation);
        let node = ask!(self.machine, cuGraphAddMemAllocNode, graph, first, count, memory)?;
        Ok((node, allocation.dptr))
    }
}

/// The server of an allocation has the program's graph, and of that no more than the piece.
#[test]
fn what_belongs_to_a_graph_stays_in_it() {
    let two = Two::new();
    let before = two.counts();
    let graph = two.graph();
    let start = two.fill(graph, 1, &[]);
    let copy = two.copy(graph, (0, 1), &[start]);
    let mut memory = 0;
    let made = two.machine.asked_by(|| {
        let (node, address) = two.allocate(graph, 0, &[copy]).expect("nothing fails");
        two.fill(graph, 0, &[node]);
        memory = address;
    });
    assert_eq!(made[0], ["graph_create", "graph_allocate"], "nothing else is sent");
    let made = two.machine.asked_by(|| {
        let exec = two.instantiate(graph).expect("nothing fails");
        call!(two.machine, cuGraphExecDestroy, exec).expect("it is there");
    });
    let is_of_graphs = |method: &&str| method.starts_with("graph");
    let graphs = made.map(|made| made.into_iter().filter(is_of_graphs).collect::<Vec<_>>());
    let cut = ["graph_create", "graph_edit", "graph_instantiate"];
    let (own, gone) = (["graph_instantiate"], ["graph_exec_destroy"]);
    let second = [&cut[..], &gone, &["graph_destroy"]].concat();
    // The fill waits for the other server, the allocation does not.
    let first = [&own[..], &cut, &gone, &gone, &["graph_destroy"]].concat();
    assert_eq!(graphs, [first, second]);
    call!(two.machine, cuGraphDestroy, graph).expect("it is there");
    call!(two.machine, cuMemFree_v2, memory).expect("it is the program's");
    assert_eq!(two.counts(), before);
}

#[test]
fn what_cannot_be_cut_is_refused_by_name() {
    let two = Two::new();
    let graph = two.graph();
    let (node, _) = two.allocate(graph, 0, &[]).expect("nothing fails");
    two.fill(graph, 1, &[node]);
    two.machine
        .refuses("an allocation on another server", || two.allocate(graph, 1, &[]).map(drop));
    // A child graph beside it would be in pieces.
    let child = two.graph();
    two.fill(child, 1, &[]);
    let none = core::ptr::null();
    ask!(two.machine, cuGraphAddChildGraphNode, graph, none, 0, child).expect("nothing fails");
    let _ = crate::logs::take_reason();
    let before = two.counts();
    let asked = two.machine.asked_by(|| {
        assert_eq!(two.instantiate(graph), Err(CUresult::CUDA_ERROR_NOT_SUPPORTED));
    });
    let reason = crate::logs::take_reason().expect("it says why");
    assert!(reason.contains("allocates memory"), "{reason}");
    assert_eq!((asked, two.counts()), ([vec![], vec![]], before));
}

#[test]
fn kernels_are_on_the_server_of_their_function() {
    let two = Two::new();
    let graph = two.graph();
    for device in DEVICES {
        two.machine.make_current(device);
        let module = ask!(two.machine, cuModuleLoadData, IMAGE).expect("nothing fails");
        let function = ask!(two.machine, cuModuleGetFunction, module, c"kernel".as_ptr());
        let mut parameter = 7_u64;
        let mut parameters = [(&raw mut parameter).cast::<c_void>()];
        let mut kernel: CUDA_KERNEL_NODE_PARAMS = nothing();
        kernel.func = function.expect("nothing fails");
        (kernel.gridDimX, kernel.gridDimY, kernel.gridDimZ) = (1, 1, 1);
        (kernel.blockDimX, kernel.blockDimY, kernel.blockDimZ) = (32, 1, 1);
        kernel.kernelParams = parameters.as_mut_ptr();
        let (none, kernel) = (core::ptr::null(), &raw const kernel);
        ask!(two.machine, cuGraphAddKernelNode_v2, graph, none, 0, kernel).expect("nothing fails");
    }
    let exec = two.instantiate(graph).expect("nothing fails");
    let launched = two.machine.asked_by(|| two.launch(exec, 0).expect("nothing fails"));
    // Neither waits for the other.
    let second = ["event_create", "event_record", "graph_launch", "event_record"];
    let first = [&second[..2], &["graph_launch", "event_record"]].concat();
    assert_eq!(launched, [first, second[2..].to_vec()]);
}
