//! Questions about devices.

use outboard_abi::CUresult;
use outboard_driver::call;
use outboard_wire::device_id::DeviceId;
use outboard_wire::messages::*;

use super::Worker;
use crate::answer::Answer;
use crate::generated::dispatch::DeviceCommands;

impl Worker {
    /// The driver's ordinal of a device that this client may use.
    pub(super) fn device_of(&self, id: DeviceId) -> Result<i32, CUresult> {
        let offered = self.platform.devices.iter().any(|device| device.id == id);
        offered.then_some(id.ordinal() as i32).ok_or(CUresult::CUDA_ERROR_INVALID_DEVICE)
    }
}

impl DeviceCommands for Worker {
    fn device_texture_1d_width(
        &mut self,
        m: DeviceTexture1dWidth,
        answer: Answer<DeviceTexture1dWidth>,
    ) {
        let mut width = 0usize;
        let outcome = self.device_of(m.device).and_then(|device| {
            let format = outboard_abi::CUarray_format_enum(m.format);
            call!(
                self.table,
                cuDeviceGetTexture1DLinearMaxWidth(&raw mut width, format, m.channels, device)
            )
        });
        answer.result(outcome.map(|()| DeviceTexture1dWidthReply { width: width as u64 }));
    }
}
