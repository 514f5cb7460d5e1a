//! The code of a session: images on their way, modules, kernels and what else modules have, by the
//! client's names.

use std::borrow::Borrow;
use std::sync::Arc;

use outboard_abi::{CUfunction, CUmodule, CUresult, CUsurfref, CUtexref};
use outboard_driver::Table;
use outboard_image::may_print;
use outboard_wire::types::ImageName;
use outboard_wire::{ContextId, ObjectId};

use super::answer::Outcome;
use super::bounds::Kind;
use super::image_cache::ImageCache;
use super::images::Images;
use super::layouts::Layouts;
use super::links::Link;
use super::modules::{Module, Upload};
use super::objects::{Handle, Named};
use super::part::Part;

/// Modules and what they are made of.
pub(crate) struct Code {
    upload: Upload,
    images: Images,
    modules: Named<Module>,
    layouts: Layouts,
    /// Whether any kernel may print.
    prints: bool,
    /// A kernel and the module it is of.
    functions: Named<(Handle<outboard_abi::CUfunc_st>, ObjectId)>,
    links: Named<Arc<Link>>,
    /// A texture reference and the module it is of; 0 if it was created.
    references: Named<(Handle<outboard_abi::CUtexref_st>, ObjectId)>,
    /// A surface reference and the module it is of.
    surface_references: Named<(Handle<outboard_abi::CUsurfref_st>, ObjectId)>,
}

impl Code {
    pub(crate) fn new(cache: Option<ImageCache>) -> Code {
        Code {
            upload: Upload::default(),
            images: Images::new(cache),
            modules: Named::new(Kind::Module),
            layouts: Layouts::default(),
            prints: false,
            functions: Named::new(Kind::Function),
            links: Named::new(Kind::Link),
            references: Named::new(Kind::Reference),
            surface_references: Named::new(Kind::Reference),
        }
    }

    /// A piece of an image has come.
    pub(crate) fn receive(&mut self, data: &[u8]) {
        self.upload.extend(data);
    }

    /// What has come, in parts of these sizes.
    pub(crate) fn take_parts(&mut self, sizes: &[u64]) -> Result<Vec<Part>, CUresult> {
        self.upload.take(sizes)
    }

    /// All that has come.
    pub(crate) fn take_whole(&mut self) -> Result<Part, CUresult> {
        let whole = self.upload.take_all()?;
        if whole.len() == 0 { Err(CUresult::CUDA_ERROR_INVALID_IMAGE) } else { Ok(whole) }
    }

    /// What has come is the image of this name.
    pub(crate) fn complete(&mut self, name: ImageName) {
        let arrived = self.upload.take_all().and_then(|image| self.images.arrived(name, image));
        if let Err(error) = arrived {
            self.upload.refuse(error);
        }
    }

    /// Whether an image that came was refused: who loads it next gets the error.
    pub(crate) fn check_arrived(&mut self) -> Outcome {
        self.upload.check()
    }

    /// Whether images are kept beyond the session.
    pub(crate) fn keeps_images(&self) -> bool {
        self.images.are_kept()
    }

    /// The images of these names, or the places of those that are missing.
    pub(crate) fn find(&mut self, names: &[ImageName]) -> Result<Vec<Arc<Part>>, Vec<u32>> {
        self.images.find(names)
    }

    /// Images that were found have been loaded.
    pub(crate) fn forget_images(&mut self) {
        self.images.forget();
    }

    /// Writes down what is to be kept.
    pub(crate) fn flush(&self) {
        self.images.flush();
    }

    /// Whether a module may have this name.
    pub(crate) fn check_new(&self, name: ObjectId) -> Outcome {
        self.modules.check_new(name)
    }

    /// An image is about to be loaded on a device of architecture `sm`.
    pub(crate) fn expect<P: Borrow<Part>>(&mut self, parts: &[P], sm: u32) {
        self.prints =
            self.prints || !matches!(parts, [part] if !may_print(part.borrow().bytes(), sm));
    }

    /// Whether any kernel may print.
    #[inline]
    pub(crate) fn prints(&self) -> bool {
        self.prints
    }

    /// An image has been loaded.
    pub(crate) fn add<P: Borrow<Part>>(
        &mut self,
        table: &Table,
        (ctx, name, module): (ContextId, ObjectId, Module),
        parts: &[P],
        sm: u32,
    ) {
        self.modules.insert(name, ctx, module);
        if Layouts::are_needed(table) {
            self.layouts.learn(name, parts, sm);
        }
    }

    pub(crate) fn module(&self, name: ObjectId) -> Result<CUmodule, CUresult> {
        self.modules.get(name).map(Module::handle)
    }

    /// Forgets a module with all that it has; it is to be unloaded then.
    pub(crate) fn remove(&mut self, name: ObjectId) -> Result<Module, CUresult> {
        let module = self.modules.remove(name)?;
        self.functions.retain(|(_, of)| *of != name);
        self.references.retain(|(_, of)| *of != name);
        self.surface_references.retain(|(_, of)| *of != name);
        self.layouts.retain(|other| other != name);
        Ok(module)
    }

    /// The kernels of images, for drivers that do not tell.
    pub(crate) fn layouts(&self) -> &Layouts {
        &self.layouts
    }

    /// Whether a kernel may have this name.
    pub(crate) fn check_new_function(&self, name: ObjectId) -> Outcome {
        self.functions.check_new(name)
    }

    pub(crate) fn add_function(
        &mut self,
        ctx: ContextId,
        name: ObjectId,
        (function, module): (CUfunction, ObjectId),
    ) {
        self.functions.insert(name, ctx, (Handle::new(function), module));
    }

    #[inline]
    pub(crate) fn function(&self, name: ObjectId) -> Result<CUfunction, CUresult> {
        self.functions.get(name).map(|(function, _)| function.get())
    }

    /// Whether a linker may have this name. Those that have failed are forgotten.
    pub(crate) fn check_new_link(&mut self, name: ObjectId) -> Outcome {
        self.links.retain(|link| !link.has_failed());
        self.links.check_new(name)
    }

    pub(crate) fn add_link(&mut self, ctx: ContextId, name: ObjectId, link: Arc<Link>) {
        self.links.insert(name, ctx, link);
    }

    pub(crate) fn link(&self, name: ObjectId) -> Result<Arc<Link>, CUresult> {
        self.links.get(name)
    }

    pub(crate) fn remove_link(&mut self, name: ObjectId) -> Outcome {
        self.links.remove(name).map(drop)
    }

    /// Whether a texture reference may have this name.
    pub(crate) fn check_new_reference(&self, name: ObjectId) -> Outcome {
        self.references.check_new(name)
    }

    /// `module` is the one it is of, [`ObjectId::NONE`] if it was created.
    pub(crate) fn add_reference(
        &mut self,
        ctx: ContextId,
        name: ObjectId,
        (reference, module): (CUtexref, ObjectId),
    ) {
        self.references.insert(name, ctx, (Handle::new(reference), module));
    }

    pub(crate) fn reference(&self, name: ObjectId) -> Result<CUtexref, CUresult> {
        self.references.get(name).map(|(reference, _)| reference.get())
    }

    /// Forgets a texture reference that was created. Those of a module end with it.
    pub(crate) fn remove_reference(&mut self, name: ObjectId) -> Result<CUtexref, CUresult> {
        if self.references.get(name)?.1 != ObjectId::NONE {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        self.references.remove(name).map(|(reference, _)| reference.get())
    }

    /// Whether a surface reference may have this name.
    pub(crate) fn check_new_surface_reference(&self, name: ObjectId) -> Outcome {
        self.surface_references.check_new(name)
    }

    pub(crate) fn add_surface_reference(
        &mut self,
        ctx: ContextId,
        name: ObjectId,
        (reference, module): (CUsurfref, ObjectId),
    ) {
        self.surface_references.insert(name, ctx, (Handle::new(reference), module));
    }

    pub(crate) fn surface_reference(&self, name: ObjectId) -> Result<CUsurfref, CUresult> {
        self.surface_references.get(name).map(|(reference, _)| reference.get())
    }

    /// Forgets what a context has.
    pub(crate) fn forget(&mut self, ctx: ContextId) {
        self.modules.forget(ctx);
        self.functions.forget(ctx);
        self.links.forget(ctx);
        self.references.forget(ctx);
        self.surface_references.forget(ctx);
        let modules = &self.modules;
        self.layouts.retain(|module| modules.get(module).is_ok());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::modules::load;
    use crate::recorded::table;

    const CTX: ContextId = ContextId(1);
    const MODULE: ObjectId = ObjectId(1);
    const OTHER: ObjectId = ObjectId(2);
    const IMAGE: &[u8] = b".version 7.0\n.target sm_70\n.visible .entry first() { ret; }\n";

    /// Two modules of the image, with a kernel and a reference each of the same numbers, and a
    /// reference that was created.
    fn code() -> Code {
        let (table, mut code) = (table(), Code::new(None));
        for name in [MODULE, OTHER] {
            let parts = [Part::new(IMAGE)];
            code.check_new(name).unwrap();
            code.expect(&parts, 90);
            let loaded = load(table, &parts, &Default::default()).outcome.unwrap();
            code.add(table, (CTX, name, loaded), &parts, 90);
            let handle = 0x10 * name.0 as usize;
            code.check_new_function(name).unwrap();
            code.add_function(CTX, name, (handle as CUfunction, name));
            code.check_new_reference(name).unwrap();
            code.add_reference(CTX, name, (handle as CUtexref, name));
            code.add_surface_reference(CTX, name, (handle as CUsurfref, name));
        }
        code.add_reference(CTX, ObjectId(3), (0x30 as CUtexref, ObjectId::NONE));
        code
    }

    #[test]
    fn what_a_module_has_ends_with_it() {
        let mut code = code();
        assert_eq!(code.function(MODULE), Ok(0x10 as CUfunction));
        assert_eq!(code.layouts().names(MODULE), ["first"]);
        assert!(code.check_new(MODULE).is_err() && code.check_new_function(MODULE).is_err());
        code.remove(MODULE).unwrap();
        assert!(code.remove(MODULE).is_err());
        assert!(code.module(MODULE).is_err() && code.function(MODULE).is_err());
        assert!(code.reference(MODULE).is_err() && code.surface_reference(MODULE).is_err());
        assert!(code.layouts().names(MODULE).is_empty());
        assert_eq!(code.function(OTHER), Ok(0x20 as CUfunction));
        assert_eq!(code.reference(OTHER), Ok(0x20 as CUtexref));
        assert_eq!(code.layouts().names(OTHER), ["first"]);
    }

    #[test]
    fn only_references_that_were_created_can_be_destroyed() {
        let mut code = code();
        assert_eq!(code.remove_reference(MODULE), Err(CUresult::CUDA_ERROR_INVALID_VALUE));
        assert_eq!(code.remove_reference(ObjectId(3)), Ok(0x30 as CUtexref));
        assert_eq!(code.remove_reference(ObjectId(3)), Err(CUresult::CUDA_ERROR_INVALID_HANDLE));
    }

    #[test]
    fn what_a_context_has_ends_with_it() {
        let mut code = code();
        code.forget(ContextId(2));
        assert!(code.module(MODULE).is_ok());
        code.forget(CTX);
        for name in [MODULE, OTHER, ObjectId(3)] {
            assert!(code.module(name).is_err() && code.function(name).is_err());
            assert!(code.reference(name).is_err() && code.layouts().names(name).is_empty());
        }
    }

    #[test]
    fn once_a_kernel_may_print_any_may() {
        let mut code = Code::new(None);
        code.expect(&[Part::new(IMAGE)], 90);
        assert!(!code.prints());
        // Of several that are linked, it is not known.
        code.expect(&[Part::new(IMAGE), Part::new(IMAGE)], 90);
        assert!(code.prints());
        code.expect(&[Part::new(IMAGE)], 90);
        assert!(code.prints());
    }

    #[test]
    fn an_image_is_cut_into_the_parts_that_it_came_in() {
        let mut code = Code::new(None);
        for piece in [&b"one"[..], b"tw", b"o"] {
            code.receive(piece);
        }
        let parts = code.take_parts(&[3, 3]).unwrap();
        assert_eq!(parts.iter().map(Part::bytes).collect::<Vec<_>>(), [b"one", b"two"]);
        assert!(code.take_whole().is_err(), "it starts anew");
        assert_eq!(code.take_parts(&[0]).unwrap()[0].bytes(), b"", "nothing is an image, too");
    }

    #[test]
    fn an_image_that_was_refused_is_an_error_of_who_loads_it() {
        let mut code = Code::new(None);
        let name = |content: &[u8]| ImageName {
            hash: outboard_image::ImageHash::of(content).0,
            bytes: content.len() as u64,
        };
        let refused = CUresult::CUDA_ERROR_INVALID_IMAGE;
        code.receive(b"one");
        code.complete(name(b"two"));
        assert_eq!(code.check_arrived(), Err(refused));
        assert_eq!(code.check_arrived(), Ok(()), "once");
        code.receive(b"one");
        code.complete(name(b"two"));
        code.receive(b"more of it");
        assert_eq!(code.take_whole().err(), Some(refused));
        code.receive(b"one");
        code.complete(name(b"one"));
        code.complete(name(b""));
        assert_eq!(code.check_arrived(), Ok(()));
        let found = code.find(&[name(b"one"), name(b"")]).unwrap();
        assert_eq!(found.iter().map(|part| part.bytes()).collect::<Vec<_>>(), [&b"one"[..], b""]);
    }
}
