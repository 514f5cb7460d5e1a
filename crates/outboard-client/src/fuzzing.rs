//! What a server sends, taken in as a session does, with memory and functions of a program at
//! stake: for the fuzz target, which has no server.

use core::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use outboard_front::backend::{ContextId, DevicePtr, HostPtr, ObjectId, StreamId};
use outboard_session::client::{Event, Incoming};
use outboard_wire::Reader;
use outboard_wire::graph::{CopyNode, HostNode, NodeParams, Place, Rows};
use outboard_wire::notice::REQUEST;
use outboard_wire::request::{GRAPH_CALL, GRAPH_READ, GRAPH_WRITE, Request};

use crate::copies::late::LateCopies;
use crate::graphs::{GraphHosts, Launch};
use crate::host_calls::HostFunctions;
use crate::link::bulk;
use crate::pager::Pager;
use crate::progress::Progress;
use crate::requests::Answerer;
use crate::session::Taken;

const CTX: ContextId = ContextId(1);
const STREAM: StreamId = StreamId(7);
const GRAPH: ObjectId = ObjectId(1);
const EXEC: ObjectId = ObjectId(2);
/// Bytes of each box, and of what is around it.
const BOX: usize = 48;
const AROUND: usize = 16;
const SOURCE: u8 = 0x11;
const KEPT: u8 = 0x22;

/// How often the program's function was called, which a worker gets no address of.
static CALLS: AtomicU64 = AtomicU64::new(0);

unsafe extern "C" fn count(_: *mut c_void) {
    CALLS.fetch_add(1, Ordering::Relaxed);
}

/// A session with a launch under way now and then, as the first bytes say; the rest is what the
/// server says. Panics if it reaches what it must not.
pub fn session(data: &[u8]) {
    let Some((&[script, piece], bytes)) = data.split_first_chunk() else { return };
    let mut source = vec![SOURCE; AROUND + BOX + AROUND];
    let mut sink = vec![KEPT; AROUND + BOX + AROUND];
    let progress = Arc::new(Progress::default());
    let graphs = Arc::new(GraphHosts::new(Arc::clone(progress.outstanding())));
    let functions =
        Arc::new(HostFunctions::new(Arc::clone(&progress), Box::leak(Box::new(Pager::new()))));
    let answerers: [Arc<dyn Answerer>; 3] =
        [functions, Arc::new(LateCopies::default()), Arc::clone(&graphs) as _];
    let numbers = nodes(&graphs, &mut source, &mut sink);
    graphs.made(EXEC, GRAPH, graphs.of_graph(GRAPH));
    let taken = Taken::default();
    let (before, mut launched, mut seq) = (CALLS.load(Ordering::Relaxed), 0, 1);
    let (mut launch, mut under_way): (Option<Launch>, bool) = (None, false);
    let mut incoming = Incoming::new();
    let mut script = u32::from(script);
    for chunk in bytes.chunks(usize::from(piece) + 1) {
        incoming.buffer().push(chunk);
        // Once in a while the program launches, or learns that a launch is over.
        if script & 3 == 1 {
            drop(launch.take());
            launch = graphs.launch(EXEC, CTX, STREAM);
            launch.iter().for_each(|launch| launch.is(seq));
            launched += 1;
            under_way = true;
        } else if script & 3 == 2 {
            progress.stream_done(CTX, STREAM, seq);
            under_way = false;
        }
        script = script.rotate_right(2);
        seq += 1;
        loop {
            match incoming.next_event() {
                Ok(Some(Event::Notice { code: REQUEST, payload })) => {
                    let Ok(request) = Reader::new(payload).get::<Request<'_>>() else { continue };
                    // Numbers that fit are found sooner so.
                    let mut body = request.body.to_vec();
                    if let Some(first) = body.first_chunk_mut::<8>() {
                        let known = numbers.get(usize::from(first[0])).copied();
                        *first = known.unwrap_or(u64::from_le_bytes(*first)).to_le_bytes();
                    }
                    for answerer in &answerers {
                        let _ = answerer.expects(request.kind, request.ctx);
                        if let Some(Ok(answer)) =
                            answerer.answer(request.kind, request.ctx, &mut Reader::new(&body))
                        {
                            let of_graphs =
                                matches!(request.kind, GRAPH_CALL | GRAPH_READ | GRAPH_WRITE);
                            assert!(under_way || !of_graphs, "answered without a launch");
                            assert!(answer.iter().all(|byte| *byte == SOURCE));
                        }
                    }
                }
                Ok(Some(Event::Notice { code, payload })) => taken.take(code, payload),
                Ok(Some(Event::Reply { .. })) => {}
                Ok(None) => break,
                Err(_) => return check(&source, &sink, launched, before),
            }
        }
    }
    drop(launch);
    check(&source, &sink, launched, before);
}

fn check(source: &[u8], sink: &[u8], launched: u64, before: u64) {
    assert!(source.iter().all(|byte| *byte == SOURCE), "what is read was written");
    let (left, right) = (&sink[..AROUND], &sink[AROUND + BOX..]);
    assert!(left.iter().chain(right).all(|byte| *byte == KEPT), "what is around a box was written");
    assert!(
        launched > 0 || sink.iter().all(|byte| *byte == KEPT),
        "something was written without a launch"
    );
    assert!(CALLS.load(Ordering::Relaxed) - before <= launched, "a launch calls a function once");
}

/// A graph that reads, writes and calls; the numbers that the worker has for that.
fn nodes(graphs: &GraphHosts, source: &mut [u8], sink: &mut [u8]) -> Vec<u64> {
    let host = |memory: &mut [u8]| {
        let address = HostPtr::of(memory.as_ptr()).offset(AROUND as u64);
        Place::Host(Rows { address, pitch: BOX as u64, height: 1 })
    };
    let device = Place::Device(Rows { address: DevicePtr(4096), pitch: BOX as u64, height: 1 });
    let extent = [BOX as u64, 1, 1];
    let function = count as unsafe extern "C" fn(*mut c_void) as usize as u64;
    let all = [
        NodeParams::Copy(CopyNode { ctx: CTX, dst: device, src: host(source), extent }),
        NodeParams::Copy(CopyNode { ctx: CTX, dst: host(sink), src: device, extent }),
        NodeParams::Host(HostNode { function, data: 0 }),
    ];
    let number = |params: &NodeParams| match params {
        NodeParams::Host(host) => host.function,
        NodeParams::Copy(
            CopyNode { src: Place::Host(rows), .. } | CopyNode { dst: Place::Host(rows), .. },
        ) => rows.address.0,
        _ => 0,
    };
    let set = |(node, params)| {
        graphs.set_node(GRAPH, node, params, || Ok(())).map_or(0, |params| number(&params))
    };
    (1..).zip(all).map(set).collect()
}

/// What a server says on lanes, with an upload and a download under way. Panics if it reaches what
/// it must not.
pub fn lanes(data: &[u8]) {
    bulk::fuzzing::lanes(data);
}
