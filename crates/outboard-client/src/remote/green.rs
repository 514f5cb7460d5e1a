//! Green contexts of a server.

use outboard_front::backend::{ContextId, GreenContexts, ObjectId, Result, Share, Split, SplitRequest};
use outboard_wire::messages as msg;

use super::Remote;

/// Devices are asked, and their resources split, outside of contexts.
const NO_CONTEXT: ContextId = ContextId(0);

/// A green context on the wire; 0 is none.
fn wire(green: Option<ObjectId>) -> u64 {
    green.map_or(0, |green| green.0)
}

impl GreenContexts for Remote {
    fn device_resource(&self, device: u32, kind: u32) -> Result<Share> {
        self.call(NO_CONTEXT, &msg::DeviceResource { device, kind }, |reply| reply.resource)
    }

    fn context_resource(&self, ctx: ContextId, green: Option<ObjectId>, kind: u32) -> Result<Share> {
        self.call(ctx, &msg::ContextResource { green: wire(green), kind }, |reply| reply.resource)
    }

    fn resource_split(&self, request: SplitRequest<'_>) -> Result<Split> {
        let message = msg::ResourceSplit {
            input: *request.input,
            groups: request.groups.unwrap_or(u32::MAX),
            remaining: request.remaining,
            flags: request.flags,
            least: request.least,
        };
        self.call(NO_CONTEXT, &message, |reply| Split {
            count: reply.count,
            groups: reply.groups,
            remaining: reply.remaining.first().copied(),
        })
    }

    fn resource_describe(&self, desc: ObjectId, resources: &[Share]) -> Result<()> {
        self.call(NO_CONTEXT, &msg::ResourceDescribe { desc: desc.0, resources: resources.to_vec() }, |_| ())
    }

    fn green_open(&self, ctx: ContextId, green: ObjectId, desc: ObjectId, flags: u32) -> Result<()> {
        self.call(ctx, &msg::GreenOpen { green: green.0, desc: desc.0, flags }, |_| ())
    }

    fn green_close(&self, ctx: ContextId, green: ObjectId) -> Result<()> {
        self.call(ctx, &msg::GreenClose { green: green.0 }, |_| ())
    }

    fn green_stream(&self, ctx: ContextId, green: ObjectId, stream: ObjectId, flags: u32, priority: i32) -> Result<()> {
        self.post(ctx, &msg::GreenStream { green: green.0, stream: stream.0, flags, priority })
    }

    fn context_record(&self, ctx: ContextId, green: Option<ObjectId>, event: ObjectId) -> Result<()> {
        let session = self.session()?;
        session.progress().record_unnamed(|| {
            let seq = session.post_numbered(ctx, &msg::ContextRecord { green: wire(green), event: event.0 })?;
            session.progress().posted(seq);
            Ok(seq)
        })
    }

    fn context_wait(&self, ctx: ContextId, green: Option<ObjectId>, event: ObjectId) -> Result<()> {
        self.post(ctx, &msg::ContextWait { green: wire(green), event: event.0 })
    }
}
