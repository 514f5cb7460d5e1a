//! Green contexts of the software device: shares are kept as told, and as many of its threads work
//! for each. Which ones, all share.

use std::collections::HashMap;

use outboard_abi::{CUresult, CUstream_flags_enum};
use outboard_front::backend::{
    Backend, ContextId, DeviceId, GreenContexts, ObjectId, Result, Share, Split, SplitRequest,
    StreamId,
};
use parking_lot::Mutex;

use crate::cpu::Cpu;
use crate::sched::{Lane, Ticket};
use crate::work::Work;

/// What is known of shares.
#[derive(Default)]
pub(crate) struct Shares {
    greens: Mutex<HashMap<ObjectId, Green>>,
    descriptions: Mutex<HashMap<ObjectId, Share>>,
    /// Events that all work to come of a context waits for, streams made later too.
    gates: Mutex<HashMap<ContextId, Vec<Ticket>>>,
}

struct Green {
    ctx: ContextId,
    share: Share,
    streams: Vec<ObjectId>,
    gates: Vec<Ticket>,
}

/// `CU_DEV_RESOURCE_TYPE_SM`.
const MULTIPROCESSORS: u32 = 1;
/// Where the fields are: the kind, ours behind it, the public ones.
const KIND: usize = 0;
const DEVICE: usize = 4;
const FIRST: usize = 8;
const COUNT: usize = 96;
const LEAST: usize = 100;
const ALIGNMENT: usize = 104;

fn field(share: &Share, at: usize) -> u32 {
    share[at..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

fn shared(fields: impl IntoIterator<Item = (usize, u32)>) -> Share {
    let mut share = [0; size_of::<Share>()];
    for (at, value) in fields {
        share[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }
    share
}

/// A part of a device's multiprocessors, from one on. As with NVIDIA's driver, it cannot be split:
/// only what a green context made of it has can.
fn part(device: u32, first: u32, count: u32) -> Share {
    shared([(KIND, MULTIPROCESSORS), (DEVICE, device), (FIRST, first), (COUNT, count)])
}

/// Multiprocessors of a device, or of a green context, from one on.
fn share(device: u32, first: u32, count: u32) -> Share {
    let fields = [(KIND, MULTIPROCESSORS), (DEVICE, device), (FIRST, first), (COUNT, count)];
    shared(fields.into_iter().chain([(LEAST, 1), (ALIGNMENT, 1)]))
}

fn split(request: &SplitRequest<'_>) -> Result<Split> {
    let (device, first, total) =
        (field(request.input, DEVICE), field(request.input, FIRST), field(request.input, COUNT));
    let size = request.least.max(1);
    if size > total || request.flags > 3 || field(request.input, LEAST) == 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
    }
    let most = total / size;
    let count = request.groups.map_or(most, |groups| groups.min(most));
    let groups = match request.groups {
        Some(_) => (0..count).map(|index| part(device, first + index * size, size)).collect(),
        None => Vec::new(),
    };
    let left = count * size;
    let remaining = request.remaining.then(|| part(device, first + left, total - left));
    Ok(Split { count, groups, remaining })
}

impl Shares {
    /// How many processors the work of a stream may use.
    pub(crate) fn processors(&self, stream: StreamId) -> u32 {
        let Some(stream) = stream.object() else { return u32::MAX };
        let greens = self.greens.lock();
        let green = greens.values().find(|green| green.streams.contains(&stream));
        green.map_or(u32::MAX, |green| field(&green.share, COUNT))
    }

    /// Forgets what a context that has ended had.
    pub(crate) fn forget(&self, ctx: ContextId) {
        self.greens.lock().retain(|_, green| green.ctx != ctx);
        self.gates.lock().remove(&ctx);
    }
}

impl Cpu {
    /// Lets a new stream wait for what its context waits for.
    pub(crate) fn pass_gates(&self, ctx: ContextId, id: ObjectId) -> Result<()> {
        let mut gates = self.shares.gates.lock();
        let Some(gates) = gates.get_mut(&ctx) else { return Ok(()) };
        gates.retain(|gate| !self.scheduler.is_done(*gate));
        wait_for(ctx, Lane::Created(id), gates)
    }

    /// The lanes of a green context, or of all the context.
    fn lanes(&self, ctx: ContextId, green: Option<ObjectId>) -> Result<Vec<Lane>> {
        match green {
            None => Ok(self.scheduler.lanes(ctx)),
            Some(green) => {
                let greens = self.shares.greens.lock();
                let green = greens.get(&green).ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)?;
                Ok(green.streams.iter().copied().map(Lane::Created).collect())
            }
        }
    }
}

/// Lets what comes in a lane wait.
fn wait_for(ctx: ContextId, lane: Lane, tickets: &[Ticket]) -> Result<()> {
    tickets.iter().try_for_each(|ticket| {
        Cpu::get().scheduler.submit(ctx, lane, Work::Nothing, Some(*ticket)).map(drop)
    })
}

impl GreenContexts for Cpu {
    fn device_resource(&self, device: DeviceId, _kind: u32) -> Result<Share> {
        Ok(share(device.ordinal(), 0, self.config().threads as u32))
    }

    fn context_resource(
        &'static self,
        _ctx: ContextId,
        green: Option<ObjectId>,
        kind: u32,
    ) -> Result<Share> {
        match green {
            // Every context of a device has all of it; which one it is matters to nobody.
            None => self.device_resource(DeviceId::new(0), kind),
            Some(green) => {
                let greens = self.shares.greens.lock();
                let green = greens.get(&green).ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)?;
                let [device, first, count] =
                    [DEVICE, FIRST, COUNT].map(|at| field(&green.share, at));
                Ok(share(device, first, count))
            }
        }
    }

    fn resource_split(&self, request: SplitRequest<'_>) -> Result<Split> {
        split(&request)
    }

    fn resource_describe(&self, desc: ObjectId, resources: &[Share]) -> Result<()> {
        let (device, first) = (field(&resources[0], DEVICE), field(&resources[0], FIRST));
        if resources
            .iter()
            .any(|one| field(one, DEVICE) != device || field(one, KIND) != MULTIPROCESSORS)
        {
            return Err(CUresult::CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
        }
        let count: u32 = resources.iter().map(|one| field(one, COUNT)).fold(0, u32::saturating_add);
        if count == 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
        }
        self.shares.descriptions.lock().insert(desc, share(device, first, count));
        Ok(())
    }

    fn green_open(
        &self,
        ctx: ContextId,
        green: ObjectId,
        desc: ObjectId,
        _flags: u32,
    ) -> Result<()> {
        self.context(ctx)?;
        let share = *self
            .shares
            .descriptions
            .lock()
            .get(&desc)
            .ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let made = Green { ctx, share, streams: Vec::new(), gates: Vec::new() };
        self.shares.greens.lock().insert(green, made);
        Ok(())
    }

    fn green_close(&self, _ctx: ContextId, green: ObjectId) -> Result<()> {
        let made =
            self.shares.greens.lock().remove(&green).ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)?;
        // Streams that the program has not destroyed cannot be named any more.
        for stream in made.streams {
            let _ = self.scheduler.remove_lane(Lane::Created(stream));
        }
        Ok(())
    }

    fn green_stream(
        &'static self,
        ctx: ContextId,
        green: ObjectId,
        stream: ObjectId,
        flags: u32,
        priority: i32,
    ) -> Result<()> {
        self.stream_create(ctx, stream, flags, priority)?;
        self.scheduler.join(Lane::Created(stream), green, false)?;
        let mut greens = self.shares.greens.lock();
        let green = greens.get_mut(&green).ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)?;
        green.gates.retain(|gate| !self.scheduler.is_done(*gate));
        green.streams.push(stream);
        wait_for(ctx, Lane::Created(stream), &green.gates)
    }

    fn green_default_stream(
        &'static self,
        ctx: ContextId,
        green: ObjectId,
        stream: ObjectId,
    ) -> Result<()> {
        self.green_stream(ctx, green, stream, CUstream_flags_enum::CU_STREAM_NON_BLOCKING.0, 0)?;
        self.scheduler.join(Lane::Created(stream), green, true)
    }

    fn context_record(
        &'static self,
        ctx: ContextId,
        green: Option<ObjectId>,
        event: ObjectId,
    ) -> Result<()> {
        let mut before = Vec::new();
        for lane in self.lanes(ctx, green)? {
            before.extend(self.scheduler.lane_pending(ctx, lane).unwrap_or_default());
        }
        // A lane of its own, so that nothing else waits.
        let lane = ObjectId(event.0 | 1 << 63);
        self.scheduler.add_lane(ctx, Lane::Created(lane), false, false)?;
        wait_for(ctx, Lane::Created(lane), &before)?;
        self.event_record(ctx, event, StreamId::created(lane), 0)?;
        self.scheduler.remove_lane(Lane::Created(lane))
    }

    fn context_wait(&self, ctx: ContextId, green: Option<ObjectId>, event: ObjectId) -> Result<()> {
        let Some(gate) = self.recorded(event)? else { return Ok(()) };
        for lane in self.lanes(ctx, green)? {
            // One that has ended meanwhile has nothing to come.
            let _ = wait_for(ctx, lane, &[gate]);
        }
        match green {
            None => self.shares.gates.lock().entry(ctx).or_default().push(gate),
            Some(green) => {
                if let Some(green) = self.shares.greens.lock().get_mut(&green) {
                    green.gates.push(gate);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(input: &Share, groups: Option<u32>, least: u32) -> SplitRequest<'_> {
        SplitRequest { input, groups, remaining: true, flags: 0, least }
    }

    #[test]
    fn splits_are_disjoint_and_leave_the_rest() {
        let whole = share(0, 0, 8);
        let halves = split(&request(&whole, Some(2), 3)).unwrap();
        assert_eq!(halves.groups, [part(0, 0, 3), part(0, 3, 3)]);
        assert_eq!((halves.count, halves.remaining), (2, Some(part(0, 6, 2))));
        assert!(
            split(&request(&halves.groups[0], Some(1), 1)).is_err(),
            "only what a green context has can be split again"
        );
    }

    #[test]
    fn a_trial_tells_how_many() {
        let whole = share(0, 0, 8);
        assert_eq!(split(&request(&whole, None, 3)).unwrap().count, 2);
        assert_eq!(split(&request(&whole, Some(9), 4)).unwrap().count, 2);
        assert!(split(&request(&whole, Some(1), 9)).is_err());
    }
}
