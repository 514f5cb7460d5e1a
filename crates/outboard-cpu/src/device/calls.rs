//! What the devices say of themselves when they are asked.

use outboard_abi::{CUdevice_attribute_enum as Attribute, CUresult};
use outboard_front::backend::{DeviceId, Devices, Result};

use super::device;
use crate::cpu::Cpu;

impl Devices for Cpu {
    fn texture_1d_width(&self, _device: DeviceId, format: u32, _channels: u32) -> Result<u64> {
        // 8, 16 and 32 bits, with and without sign, and two kinds of floats.
        if !matches!(format, 1..=3 | 8..=10 | 0x10 | 0x20) {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let widest = device(self.config(), 0, "")
            .attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH.0);
        Ok(widest.unwrap_or(0) as u64)
    }
}
