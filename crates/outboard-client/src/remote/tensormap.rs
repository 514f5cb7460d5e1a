//! Tensor maps.

use outboard_front::backend::{ContextId, Im2colMap, Result, TensorMaps};
use outboard_wire::messages as msg;

use super::Remote;

impl TensorMaps for Remote {
    fn tensor_map_im2col(&self, ctx: ContextId, map: &Im2colMap<'_>) -> Result<[u8; 128]> {
        let message = msg::TensorMapIm2col {
            data_type: map.data_type,
            address: map.address,
            dims: map.dims.to_vec(),
            strides: map.strides.to_vec(),
            lower: map.lower.to_vec(),
            upper: map.upper.to_vec(),
            channels_and_pixels: map.channels_and_pixels,
            element_strides: map.element_strides.to_vec(),
            interleave: map.interleave,
            wide: map.wide.into_iter().collect(),
            swizzle: map.swizzle,
            promotion: map.promotion,
            fill: map.fill,
        };
        self.call(ctx, &message, |reply| reply.map)
    }
}
