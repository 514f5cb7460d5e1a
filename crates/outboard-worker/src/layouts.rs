//! Kernels of images and their parameters, read from the images themselves: for drivers of before
//! CUDA 12.4, which do not tell.

use std::borrow::Borrow;
use std::collections::HashMap;

use outboard_driver::Table;
use outboard_image::Kernel;
use outboard_wire::ObjectId;

use super::part::Part;

/// The kernels of each module, by the client's name for the module.
#[derive(Default)]
pub(crate) struct Layouts(HashMap<ObjectId, Vec<Kernel>>);

impl Layouts {
    /// Whether the driver leaves something to be read from images.
    pub(crate) fn are_needed(table: &Table) -> bool {
        table.cuFuncGetParamInfo.is_none() || table.cuModuleEnumerateFunctions.is_none()
    }

    /// Reads the images of a module, as a device of architecture `sm` would choose among their
    /// entries.
    pub(crate) fn learn<P: Borrow<Part>>(&mut self, module: ObjectId, parts: &[P], sm: u32) {
        // An image that cannot be parsed has no kernels that the driver could have loaded.
        let kernels_of =
            |part: &P| outboard_image::kernels(part.borrow().bytes(), sm).unwrap_or_default();
        let kernels = parts.iter().flat_map(kernels_of);
        self.0.insert(module, kernels.collect());
    }

    /// Forgets the modules that are not `alive`.
    pub(crate) fn retain(&mut self, alive: impl Fn(ObjectId) -> bool) {
        self.0.retain(|module, _| alive(*module));
    }

    /// Offset and size of each parameter of a kernel.
    pub(crate) fn params(&self, module: ObjectId, kernel: &str) -> Vec<(u32, u32)> {
        let found = self.kernels(module).iter().find(|found| found.name == kernel);
        found.map_or_else(Vec::new, |found| {
            found.params.iter().map(|param| (param.offset, param.size)).collect()
        })
    }

    /// The kernels' names, in the image's order.
    pub(crate) fn names(&self, module: ObjectId) -> Vec<String> {
        self.kernels(module).iter().map(|kernel| kernel.name.clone()).collect()
    }

    fn kernels(&self, module: ObjectId) -> &[Kernel] {
        self.0.get(&module).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PTX: &str = ".version 7.5\n.target sm_75\n.address_size 64\n\
        .visible .entry first(.param .u64 a, .param .u8 b, .param .align 8 .b8 c[24]) { ret; }\n\
        .visible .entry second() { ret; }\n";

    #[test]
    fn parameters_are_read_from_the_image() {
        let mut layouts = Layouts::default();
        layouts.learn(
            ObjectId(7),
            &[Part::new(PTX.as_bytes()), Part::new(b"nothing that is known")],
            90,
        );
        assert_eq!(layouts.names(ObjectId(7)), ["first", "second"]);
        assert_eq!(layouts.params(ObjectId(7), "first"), [(0, 8), (8, 1), (16, 24)]);
        assert!(
            layouts.params(ObjectId(7), "second").is_empty()
                && layouts.params(ObjectId(7), "third").is_empty()
        );
        assert!(layouts.names(ObjectId(8)).is_empty());
        layouts.retain(|module| module != ObjectId(7));
        assert!(layouts.names(ObjectId(7)).is_empty());
    }
}
