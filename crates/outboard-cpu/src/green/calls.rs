//! Green contexts.

use outboard_abi::{CUresult, CUstream_flags_enum};
use outboard_front::backend::{
    Backend, ContextId, DeviceId, GreenContexts, ObjectId, Result, Share, Split, SplitRequest,
    StreamId,
};

use super::{COUNT, DEVICE, FIRST, Green, KIND, MULTIPROCESSORS, field, share, split};
use crate::cpu::Cpu;
use crate::sched::{Lane, Ticket};
use crate::work::Work;

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
