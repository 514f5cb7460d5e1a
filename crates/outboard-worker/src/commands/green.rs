//! Shares of a device, and green contexts with such a share.

use outboard_abi::{CUdevResource, CUdevResourceType, CUevent, CUgreenCtx_st, CUresult};
use outboard_driver::call;
use outboard_wire::ObjectId;
use outboard_wire::messages::*;

use super::{Handle, current};
use crate::answer::{Answer, Outcome};
use crate::generated::dispatch::GreenCommands;
use crate::partitions::Bytes;
use crate::portion::{self, Green, MOST_GROUPS};
use crate::worker::Worker;

const MULTIPROCESSORS: u32 = CUdevResourceType::CU_DEV_RESOURCE_TYPE_SM.0;

impl Worker {
    fn device_share(&mut self, m: &DeviceResource) -> Result<Bytes, CUresult> {
        let device = self.offered.ordinal(m.device)? as i32;
        let mut resource = portion::empty();
        if m.kind == MULTIPROCESSORS && self.partitions.has_portion(device) {
            // To the session, it is the device.
            let green = self.stand_in(device)?;
            call!(
                self.table,
                cuGreenCtxGetDevResource(green.get(), &raw mut resource, CUdevResourceType(m.kind))
            )?;
            return self.partitions.hand_out(&resource);
        }
        call!(
            self.table,
            cuDeviceGetDevResource(device, &raw mut resource, CUdevResourceType(m.kind))
        )?;
        self.partitions.hand_out(&resource)
    }

    /// A green context with all that the session has of a device. Only what it tells of itself can
    /// be split further, unlike what it was made of.
    fn stand_in(&mut self, device: i32) -> Result<Handle<CUgreenCtx_st>, CUresult> {
        let open = self.contexts.all().find(|context| context.device == device);
        if let Some(green) = open.and_then(|context| context.green) {
            return Ok(green);
        }
        // Whoever asks before there is a context will make one of what is told.
        self.partitions.stand_in(self.table, device)
    }

    fn context_share(&mut self, m: &ContextResource) -> Result<Bytes, CUresult> {
        let context = self.enter()?;
        let (mut resource, kind) = (portion::empty(), CUdevResourceType(m.kind));
        match m.green {
            ObjectId::NONE => {
                call!(self.table, cuCtxGetDevResource(current(&context), &raw mut resource, kind))?
            }
            name => {
                let green = self.partitions.green(name)?;
                call!(
                    self.table,
                    cuGreenCtxGetDevResource(green.context.get(), &raw mut resource, kind)
                )?;
            }
        }
        self.partitions.hand_out(&resource)
    }

    fn split(&mut self, m: &ResourceSplit) -> Result<ResourceSplitReply, CUresult> {
        let input = self.partitions.check(&m.input)?;
        let is_trial = m.groups == u32::MAX;
        let mut count = if is_trial { 0 } else { m.groups.min(MOST_GROUPS) };
        let mut groups: Vec<CUdevResource> = (0..count).map(|_| portion::empty()).collect();
        let result = if is_trial { core::ptr::null_mut() } else { groups.as_mut_ptr() };
        let mut left = portion::empty();
        let remaining = if m.remaining { &raw mut left } else { core::ptr::null_mut() };
        call!(
            self.table,
            cuDevSmResourceSplitByCount(
                result,
                &raw mut count,
                &raw const input,
                remaining,
                m.flags,
                m.least
            )
        )?;
        groups.truncate(count as usize);
        let groups =
            groups.iter().map(|group| self.partitions.hand_out(group)).collect::<Result<_, _>>()?;
        let remaining =
            if m.remaining { vec![self.partitions.hand_out(&left)?] } else { Vec::new() };
        Ok(ResourceSplitReply { count, groups, remaining })
    }

    fn describe(&mut self, m: &ResourceDescribe) -> Result<(), CUresult> {
        let mut given = m
            .resources
            .iter()
            .map(|one| self.partitions.check(one))
            .collect::<Result<Vec<_>, _>>()?;
        self.partitions.check_new(m.desc)?;
        let mut desc = core::ptr::null_mut();
        call!(
            self.table,
            cuDevResourceGenerateDesc(&raw mut desc, given.as_mut_ptr(), given.len() as u32)
        )?;
        self.partitions.describe(m.desc, Handle::new(desc));
        Ok(())
    }

    fn open_green(&mut self, m: &GreenOpen) -> Result<(), CUresult> {
        let context = self.enter()?;
        self.partitions.check_new_green(m.green)?;
        let (desc, mut green) = (self.partitions.description(m.desc)?, core::ptr::null_mut());
        call!(self.table, cuGreenCtxCreate(&raw mut green, desc.get(), context.device, m.flags))?;
        let mut real = core::ptr::null_mut();
        let converted = call!(self.table, cuCtxFromGreenCtx(&raw mut real, green));
        if let Err(error) = converted {
            let _ = call!(self.table, cuGreenCtxDestroy(green));
            return Err(error);
        }
        let green = Green { context: Handle::new(green), real: Handle::new(real) };
        self.partitions.add_green(self.contexts.here(), m.green, green);
        Ok(())
    }

    /// The green context, if one is named, and the event.
    fn parties(
        &mut self,
        green: ObjectId,
        event: ObjectId,
    ) -> Result<(Option<Green>, CUevent), CUresult> {
        self.enter()?;
        let green =
            if green == ObjectId::NONE { None } else { Some(self.partitions.green(green)?) };
        Ok((green, self.streams.event(event)?))
    }
}

impl GreenCommands for Worker {
    fn device_resource(&mut self, m: DeviceResource, answer: Answer<DeviceResource>) {
        let outcome = self.device_share(&m);
        answer.result(outcome.map(|resource| DeviceResourceReply { resource }));
    }

    fn context_resource(&mut self, m: ContextResource, answer: Answer<ContextResource>) {
        let outcome = self.context_share(&m);
        answer.result(outcome.map(|resource| ContextResourceReply { resource }));
    }

    fn resource_split(&mut self, m: ResourceSplit, answer: Answer<ResourceSplit>) {
        let outcome = self.split(&m);
        answer.result(outcome);
    }

    fn resource_describe(&mut self, m: ResourceDescribe, answer: Answer<ResourceDescribe>) {
        let outcome = self.describe(&m);
        answer.result(outcome.map(|()| ResourceDescribeReply {}));
    }

    fn green_open(&mut self, m: GreenOpen, answer: Answer<GreenOpen>) {
        let outcome = self.open_green(&m);
        answer.result(outcome.map(|()| GreenOpenReply {}));
    }

    fn green_close(&mut self, m: GreenClose, answer: Answer<GreenClose>) {
        // Its streams end with it.
        self.stop_looking();
        self.streams.waits.lose_track(self.contexts.here());
        match self
            .enter()
            .and_then(|context| self.partitions.remove_green(m.green).map(|green| (context, green)))
        {
            // The driver waits for the work in it.
            Ok((context, green)) => self.on_helper(
                context,
                answer,
                move |table| call!(table, cuGreenCtxDestroy(green.context.get())),
                |answer, outcome| answer.result(outcome.map(|()| GreenCloseReply {})),
            ),
            Err(error) => answer.error(error),
        }
    }

    fn green_stream(&mut self, m: GreenStream) -> Outcome {
        self.enter()?;
        let green = self.partitions.green(m.green)?;
        self.streams.check_new(m.stream)?;
        // Streams of all kinds come about in a green context that is current.
        self.contexts.lose_current();
        call!(self.table, cuCtxSetCurrent(green.real.get()))?;
        let mut stream = core::ptr::null_mut();
        call!(self.table, cuStreamCreateWithPriority(&raw mut stream, m.flags, m.priority))?;
        self.streams.add(self.contexts.here(), m.stream, stream);
        Ok(())
    }

    fn context_record(&mut self, m: ContextRecord) -> Outcome {
        let (green, event) = self.parties(m.green, m.event)?;
        match green {
            Some(green) => call!(self.table, cuGreenCtxRecordEvent(green.context.get(), event)),
            None => call!(self.table, cuCtxRecordEvent(current(&self.enter()?), event)),
        }
    }

    fn context_wait(&mut self, m: ContextWait) -> Outcome {
        let (green, event) = self.parties(m.green, m.event)?;
        match green {
            Some(green) => call!(self.table, cuGreenCtxWaitEvent(green.context.get(), event)),
            None => call!(self.table, cuCtxWaitEvent(current(&self.enter()?), event)),
        }
    }
}
