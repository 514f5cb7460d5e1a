//! Questions about devices.

use outboard_driver::call;
use outboard_wire::messages::*;

use crate::answer::Answer;
use crate::generated::dispatch::DeviceCommands;
use crate::worker::Worker;

impl DeviceCommands for Worker {
    fn device_texture_1d_width(
        &mut self,
        m: DeviceTexture1dWidth,
        answer: Answer<DeviceTexture1dWidth>,
    ) {
        let mut width = 0usize;
        let outcome = self.offered.ordinal(m.device).and_then(|device| {
            let device = device as i32;
            let format = outboard_abi::CUarray_format_enum(m.format);
            call!(
                self.table,
                cuDeviceGetTexture1DLinearMaxWidth(&raw mut width, format, m.channels, device)
            )
        });
        answer.result(outcome.map(|()| DeviceTexture1dWidthReply { width: width as u64 }));
    }
}
