//! Launches of executables that several servers have.

use super::make::live;
use crate::backend::{Backend, ContextId, ObjectId, Result, StreamId};
use crate::context::Here;
use crate::event::DISABLE_TIMING;
use crate::parts::graph::spread::{Launches, Spread, Step, Work};
use crate::process::Process;

/// A stream, and the context to work in.
#[derive(Clone)]
struct Queue {
    here: Here,
    stream: StreamId,
}

impl Queue {
    /// Has later work wait for an event of a context.
    fn wait<B: Backend>(
        &self,
        process: &'static Process<B>,
        of: ContextId,
        event: ObjectId,
    ) -> Result<()> {
        let (ctx, stream) = (self.here.id, self.stream);
        self.here.note(if ctx.has_server_of(of) {
            process.backend.stream_wait_event(ctx, stream, event, 0)
        } else {
            process.backend.wait_for_event(ctx, stream, of, event)
        })
    }

    fn record<B: Backend>(&self, process: &'static Process<B>, event: ObjectId) -> Result<()> {
        self.here.note(process.backend.event_record(self.here.id, event, self.stream, 0))
    }

    fn run<B: Backend>(&self, process: &'static Process<B>, work: &Work) -> Result<()> {
        let (ctx, stream) = (self.here.id, self.stream);
        match work {
            Work::Piece(piece) => {
                self.here.note(process.backend.graph_launch(ctx, piece.exec, stream))
            }
            Work::Copy(step) => {
                let step = step.lock();
                if !step.is_enabled {
                    return Ok(());
                }
                // A fault of another server's device is none of this context.
                // SAFETY: neither side is host memory, and device memory that a graph names stays
                // until the graph has run.
                unsafe { process.backend.copy_across(ctx, stream, &step.copy) }
            }
        }
    }
}

/// The streams of a launch.
struct Launch<'a, B: Backend> {
    process: &'static Process<B>,
    spread: &'a Spread,
    /// The stream that the program names.
    own: Queue,
    tracks: Vec<Queue>,
}

/// Launches an executable in a stream.
pub(crate) fn launch<B: Backend>(
    process: &'static Process<B>,
    spread: &Spread,
    here: Here,
    stream: StreamId,
) -> Result<()> {
    let mut launches = spread.launches.lock();
    // Before anything is queued: all of it fails if a context is gone or has a fault.
    let tracks = spread.tracks.iter().map(|track| {
        if track.is_for_pieces && track.ctx == here.id {
            return Ok(Queue { here: here.clone(), stream });
        }
        Ok(Queue { here: live(process, track.ctx)?, stream: track.stream })
    });
    let tracks = tracks.collect::<Result<_>>()?;
    let launch = Launch { process, spread, own: Queue { here, stream }, tracks };
    launch.begin(&mut launches)?;
    launch.run(&launches)
}

impl<B: Backend> Launch<'_, B> {
    /// Has the program's stream come behind the launch before, and notes what is before this one.
    fn begin(&self, launches: &mut Launches) -> Result<()> {
        let Queue { here, stream } = &self.own;
        let own = (here.id, *stream);
        if launches.last.is_some_and(|last| last != own) {
            self.last_steps().try_for_each(|step| self.wait_for(&self.own, step))?;
        }
        launches.last = Some(own);
        if self.is_own_alone() {
            return Ok(());
        }
        let event = match launches.begins.get(&here.id) {
            Some(event) => *event,
            None => {
                let event = crate::event::create(self.process, here, DISABLE_TIMING)?.id();
                launches.begins.insert(here.id, event);
                event
            }
        };
        self.own.record(self.process, event)
    }

    /// Whether all that begins the launch is in the program's stream.
    fn is_own_alone(&self) -> bool {
        self.spread.steps.iter().all(|step| !step.begins || self.is_own(step))
    }

    /// Whether a step is in the program's stream.
    fn is_own(&self, step: &Step) -> bool {
        let track = &self.tracks[step.track];
        (track.here.id, track.stream) == (self.own.here.id, self.own.stream)
    }

    fn run(&self, launches: &Launches) -> Result<()> {
        for step in &self.spread.steps {
            if let Err(error) = self.step(step, launches) {
                self.give_up();
                return Err(error);
            }
        }
        self.end()
    }

    fn step(&self, step: &Step, launches: &Launches) -> Result<()> {
        let (process, track) = (self.process, &self.tracks[step.track]);
        let own = self.own.here.id;
        if step.begins
            && !self.is_own(step)
            && let Some(event) = launches.begins.get(&own)
        {
            track.wait(process, own, *event)?;
        }
        for other in &step.waits {
            self.wait_for(track, &self.spread.steps[*other])?;
        }
        track.run(process, &step.work)?;
        step.event.map_or(Ok(()), |event| track.record(process, event))
    }

    fn wait_for(&self, queue: &Queue, step: &Step) -> Result<()> {
        let ctx = self.spread.tracks[step.track].ctx;
        step.event.map_or(Ok(()), |event| queue.wait(self.process, ctx, event))
    }

    /// Has the program's stream go on behind the launch.
    fn end(&self) -> Result<()> {
        let ends = self.spread.steps.iter().filter(|step| step.ends && !self.is_own(step));
        ends.into_iter().try_for_each(|step| self.wait_for(&self.own, step))
    }

    /// The last step of each track. It has an event: something waits for it.
    fn last_steps(&self) -> impl Iterator<Item = &Step> {
        (0..self.tracks.len())
            .filter_map(|track| self.spread.steps.iter().rfind(|step| step.track == track))
    }

    /// Has the program's stream go on behind what has been queued. Not all of it is.
    fn give_up(&self) {
        for step in self.last_steps() {
            // The launch has failed, and returns that error.
            let recorded = step
                .event
                .map_or(Ok(()), |event| self.tracks[step.track].record(self.process, event));
            if recorded.is_ok() && !self.is_own(step) {
                let _ = self.wait_for(&self.own, step);
            }
        }
    }
}

/// Takes what a launch needs to the devices.
pub(crate) fn upload<B: Backend>(process: &'static Process<B>, spread: &Spread) -> Result<()> {
    for step in &spread.steps {
        let (track, Work::Piece(piece)) = (&spread.tracks[step.track], &step.work) else {
            continue;
        };
        let here = live(process, track.ctx)?;
        here.note(process.backend.graph_upload(here.id, piece.exec, track.stream))?;
    }
    Ok(())
}
