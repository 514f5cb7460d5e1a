//! Calls that queue work, and calls that wait for it.

use std::ptr;
use std::time::Duration;

use outboard_abi::*;

use super::measure::Measure;
use super::sampling::{Prepared, nothing, repeat};
use crate::lab::{Lab, Result, driver};
use crate::results::{Group, Unit};

/// Launches in a row that no queue is too short for.
const BURST: u32 = 200;
/// Launches in a row that fill every queue.
const SUSTAINED: u32 = 10_000;
/// Kernels in the graph.
const NODES: u32 = 20;

pub(super) fn catalogue() -> Vec<Measure> {
    let time = |id: &str, title: &str| Measure::new(id, title, Unit::Time, Group::Calls);
    vec![
        time("launch.cost", "launch of an empty kernel, cost on the caller (200 in a row)"),
        time("launch.sustained", "launches back to back, sustained (10,000 and a wait, each)"),
        time("launch.sync", "launch and cuStreamSynchronize"),
        time("sync.stream", "cuStreamSynchronize, nothing pending"),
        time("sync.context", "cuCtxSynchronize, nothing pending"),
        time("stream.query", "cuStreamQuery, nothing pending"),
        time("event.record", "cuEventRecord, cost on the caller (200 in a row)"),
        time("event.query", "cuEventQuery of an event that is over"),
        time("event.round", "cuEventRecord and cuEventSynchronize"),
        time("event.wait", "cuStreamWaitEvent, cost on the caller (200 in a row)"),
        time(
            "graph.launch",
            "launch of a graph of 20 empty kernels, cost on the caller (20 in a row)",
        ),
        time("graph.sync", "launch of that graph and cuStreamSynchronize"),
        time("context.further", "cuCtxCreate and cuCtxDestroy, beside the primary context"),
    ]
}

pub(super) fn prepare(lab: &Lab, measure: &str, budget: Duration) -> Result<Option<Prepared>> {
    let lab = *lab;
    let (table, stream) = (lab.table, lab.stream);
    let name = measure.to_owned();
    // A short wait, which does not count, before each burst: its work starts with empty queues.
    let settle = move || lab.wait();
    let prepared: Prepared = match measure {
        "launch.cost" => Box::new(move || repeat(&name, budget, BURST, settle, || lab.launch())),
        "launch.sustained" => Box::new(move || {
            let mut turn = repeat(&name, budget, 1, settle, || {
                for _ in 0..SUSTAINED {
                    lab.launch()?;
                }
                lab.wait()
            })?;
            turn.samples.values_mut().flatten().for_each(|sample| *sample /= f64::from(SUSTAINED));
            turn.operations *= u64::from(SUSTAINED);
            Ok(turn)
        }),
        "launch.sync" => Box::new(move || {
            repeat(&name, budget, 1, nothing, || {
                lab.launch()?;
                lab.wait()
            })
        }),
        "sync.stream" => Box::new(move || repeat(&name, budget, 1, nothing, || lab.wait())),
        "sync.context" => Box::new(move || {
            repeat(&name, budget, 1, nothing, || driver!(table, cuCtxSynchronize()))
        }),
        "stream.query" => Box::new(move || {
            repeat(&name, budget, 1, nothing, || driver!(table, cuStreamQuery(stream)))
        }),
        "event.record" => {
            let event = event(&lab)?;
            Box::new(move || {
                repeat(&name, budget, BURST, settle, || {
                    driver!(table, cuEventRecord(event, stream))
                })
            })
        }
        "event.query" => {
            let event = event(&lab)?;
            driver!(table, cuEventRecord(event, stream))?;
            driver!(table, cuEventSynchronize(event))?;
            Box::new(move || {
                repeat(&name, budget, 1, nothing, || driver!(table, cuEventQuery(event)))
            })
        }
        "event.round" => {
            let event = event(&lab)?;
            Box::new(move || {
                repeat(&name, budget, 1, nothing, || {
                    driver!(table, cuEventRecord(event, stream))?;
                    driver!(table, cuEventSynchronize(event))
                })
            })
        }
        "event.wait" => {
            let event = event(&lab)?;
            driver!(table, cuEventRecord(event, stream))?;
            Box::new(move || {
                repeat(&name, budget, BURST, settle, || {
                    driver!(table, cuStreamWaitEvent(stream, event, 0))
                })
            })
        }
        "graph.launch" => {
            let graph = graph(&lab)?;
            Box::new(move || {
                repeat(&name, budget, 20, settle, || driver!(table, cuGraphLaunch(graph, stream)))
            })
        }
        "graph.sync" => {
            let graph = graph(&lab)?;
            Box::new(move || {
                repeat(&name, budget, 1, nothing, || {
                    driver!(table, cuGraphLaunch(graph, stream))?;
                    lab.wait()
                })
            })
        }
        "context.further" => {
            let mut device = 0;
            driver!(table, cuCtxGetDevice(&mut device))?;
            Box::new(move || {
                repeat(&name, budget, 1, nothing, || {
                    let mut context = ptr::null_mut();
                    driver!(table, cuCtxCreate_v2(&mut context, 0, device))?;
                    driver!(table, cuCtxDestroy_v2(context))
                })
            })
        }
        _ => return Ok(None),
    };
    Ok(Some(prepared))
}

/// An event as frameworks make them: without timing.
fn event(lab: &Lab) -> Result<CUevent> {
    let mut event = ptr::null_mut();
    driver!(lab.table, cuEventCreate(&mut event, CUevent_flags_enum::CU_EVENT_DISABLE_TIMING.0))?;
    Ok(event)
}

/// An executable graph of some launches, captured.
fn graph(lab: &Lab) -> Result<CUgraphExec> {
    let table = lab.table;
    let (mut graph, mut executable) = (ptr::null_mut(), ptr::null_mut());
    let mode = CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    driver!(table, cuStreamBeginCapture_v2(lab.stream, mode))?;
    for _ in 0..NODES {
        lab.launch()?;
    }
    driver!(table, cuStreamEndCapture(lab.stream, &mut graph))?;
    driver!(table, cuGraphInstantiateWithFlags(&mut executable, graph, 0))?;
    driver!(table, cuGraphLaunch(executable, lab.stream))?;
    lab.wait()?;
    Ok(executable)
}
