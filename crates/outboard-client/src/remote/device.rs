//! Questions about devices that their snapshots do not answer.

use outboard_front::backend::{ContextId, Devices, Result};
use outboard_wire::messages as msg;

use super::Remote;

/// Devices are asked outside of contexts.
const NO_CONTEXT: ContextId = ContextId(0);

impl Devices for Remote {
    fn texture_1d_width(&self, device: u32, format: u32, channels: u32) -> Result<u64> {
        self.call(NO_CONTEXT, &msg::DeviceTexture1dWidth { device, format, channels }, |reply| reply.width)
    }
}
