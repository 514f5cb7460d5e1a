//! Texture and surface references.

use outboard_front::backend::{ContextId, ObjectId, ReferenceSetting, References, Result};
use outboard_wire::messages as msg;

use super::Remote;

impl References for Remote {
    fn reference_create(&self, ctx: ContextId, id: ObjectId) -> Result<()> {
        self.call(ctx, &msg::ReferenceCreate { reference: id.0 }, |_| ())
    }

    fn reference_destroy(&self, ctx: ContextId, id: ObjectId) -> Result<()> {
        self.call(ctx, &msg::ReferenceDestroy { reference: id.0 }, |_| ())
    }

    fn reference_find(&self, ctx: ContextId, module: ObjectId, name: &str, id: ObjectId) -> Result<()> {
        self.call(ctx, &msg::ReferenceFind { module: module.0, name, reference: id.0 }, |_| ())
    }

    fn reference_set(&self, ctx: ContextId, id: ObjectId, setting: &ReferenceSetting) -> Result<u64> {
        self.call(ctx, &msg::ReferenceSet { reference: id.0, setting: *setting }, |reply| reply.offset)
    }

    fn reference_get(&self, ctx: ContextId, id: ObjectId, like: &ReferenceSetting) -> Result<ReferenceSetting> {
        self.call(ctx, &msg::ReferenceGet { reference: id.0, like: *like }, |reply| reply.setting)
    }

    fn surface_reference_find(&self, ctx: ContextId, module: ObjectId, name: &str, id: ObjectId) -> Result<()> {
        self.call(ctx, &msg::SurfaceReferenceFind { module: module.0, name, reference: id.0 }, |_| ())
    }

    fn surface_reference_set(&self, ctx: ContextId, id: ObjectId, array: ObjectId, flags: u32) -> Result<()> {
        self.call(ctx, &msg::SurfaceReferenceSet { reference: id.0, array: array.0, flags }, |_| ())
    }
}
