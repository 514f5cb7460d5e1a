//! Launches, and queries of occupancy.

use outboard_front::backend::{ContextId, Launch, Result, StreamId};
use outboard_wire::messages as msg;

use super::Remote;

fn dims([x, y, z]: [u32; 3]) -> (u32, u32, u32) {
    (x, y, z)
}

impl Remote {
    /// Queues a kernel.
    #[inline]
    pub(super) fn launch(
        &'static self,
        ctx: ContextId,
        launch: &Launch<'_>,
        stream: StreamId,
    ) -> Result<()> {
        self.map_parameters(ctx, launch.params)?;
        let message = msg::Launch {
            function: launch.function,
            stream,
            grid: dims(launch.grid),
            block: dims(launch.block),
            shared: launch.shared,
            cooperative: launch.cooperative,
            params: launch.params,
            attributes: launch.attributes.to_vec(),
        };
        if !message.attributes.is_empty() {
            // An event may be among them.
            let session = self.session()?;
            let post = || {
                session.progress().record_unnamed(|| session.post_counted(ctx, stream, &message))
            };
            return self.work(ctx, stream, post);
        }
        self.work(ctx, stream, || self.post_to(ctx, stream, &message))
    }
}
