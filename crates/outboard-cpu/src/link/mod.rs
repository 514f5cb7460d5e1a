//! The linker of the software device: it collects PTX, and what it makes is a file of all the
//! texts, which loads as one program.

mod calls;

use std::borrow::Cow;
use std::collections::HashSet;

use outboard_abi::{CUjitInputType_enum as Input, CUresult};
use outboard_front::backend::{ContextId, JitLog, JitOptions, LinkInput};
use outboard_image::Format;
use outboard_ptx::ir::{Linkage, Module};
use parking_lot::Mutex;

use crate::module::{Outcome, Refusal, damaged, linked_texts, no_ptx, parse, ptx_of};

/// A link of a program.
pub(crate) struct Link {
    pub(crate) ctx: ContextId,
    options: JitOptions,
    inputs: Mutex<Inputs>,
}

#[derive(Default)]
struct Inputs {
    units: Vec<Unit>,
    /// Objects of archives, which are linked if something needs them.
    spare: Vec<Unit>,
}

/// One PTX text, and the names in it that others can see.
struct Unit {
    text: String,
    defines: Vec<String>,
    needs: Vec<String>,
}

impl Unit {
    fn new(text: &str) -> Outcome<Unit> {
        let (defines, needs) = names(&parse(text)?);
        Ok(Unit { text: text.to_owned(), defines, needs })
    }
}

/// What a module defines for others, and what it declares and leaves to them.
fn names(module: &Module) -> (Vec<String>, Vec<String>) {
    let functions = module.functions.iter().map(|f| (&f.name, f.linkage, f.body.is_some()));
    let variables = module.globals.iter().filter(|g| !g.is_dynamic_shared());
    let variables = variables.map(|g| (&g.name, g.linkage, g.linkage != Linkage::Extern));
    let (mut defines, mut needs) = (Vec::new(), Vec::new());
    for (name, linkage, defined) in functions.chain(variables) {
        match (defined, linkage) {
            (true, Linkage::Internal) => {}
            (true, _) => defines.push(name.clone()),
            (false, _) => needs.push(name.clone()),
        }
    }
    (defines, needs)
}

impl Inputs {
    fn add(&mut self, input: &LinkInput<'_>, log: &mut JitLog) -> Outcome<()> {
        let named = |Refusal(error, why): Refusal| Refusal(error, format!("{}: {why}", input.name));
        match Input(input.kind) {
            Input::CU_JIT_INPUT_LIBRARY => self.add_archive(input.data, log).map_err(named),
            Input::CU_JIT_INPUT_NVVM => {
                let why = "intermediate code for link-time optimisation is machine code's: give PTX in its place";
                Err(named(Refusal(CUresult::CUDA_ERROR_NOT_SUPPORTED, why.into())))
            }
            _ => {
                for text in texts(input).map_err(named)? {
                    self.units.push(Unit::new(&text).map_err(named)?);
                }
                Ok(())
            }
        }
    }

    fn add_archive(&mut self, archive: &[u8], log: &mut JitLog) -> Outcome<()> {
        for (name, object) in
            outboard_image::archive_members(archive).map_err(|error| damaged(&error))?
        {
            // What the device cannot run is an error only if it is needed, and then the symbol is
            // missing.
            let texts = object_texts(object);
            let units = texts.and_then(|texts| {
                texts.iter().map(|text| Unit::new(text)).collect::<Outcome<Vec<_>>>()
            });
            match units {
                Ok(units) => self.spare.extend(units),
                Err(Refusal(_, why)) => log.info.push_str(&format!("{name} is left out: {why}\n")),
            }
        }
        Ok(())
    }

    /// Takes from the archives what defines what is missing.
    fn take_spare(&mut self) {
        loop {
            let defined: HashSet<&String> =
                self.units.iter().flat_map(|unit| &unit.defines).collect();
            let missing: HashSet<&String> = self
                .units
                .iter()
                .flat_map(|unit| &unit.needs)
                .filter(|name| !defined.contains(name))
                .collect();
            let wanted = self
                .spare
                .iter()
                .position(|unit| unit.defines.iter().any(|name| missing.contains(name)));
            match wanted {
                Some(index) => {
                    let unit = self.spare.remove(index);
                    self.units.push(unit);
                }
                None => return,
            }
        }
    }
}

/// The PTX texts of an input.
fn texts<'a>(input: &LinkInput<'a>) -> Outcome<Vec<Cow<'a, str>>> {
    let data = input.data;
    let found = match Input(input.kind) {
        Input::CU_JIT_INPUT_PTX => {
            let end = data.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            let refuse =
                |_| Refusal(CUresult::CUDA_ERROR_INVALID_PTX, "the PTX is not text".into());
            vec![Cow::Borrowed(std::str::from_utf8(&data[..end]).map_err(refuse)?)]
        }
        Input::CU_JIT_INPUT_OBJECT => object_texts(data)?,
        _ if outboard_image::format_of(data).map_err(|error| damaged(&error))? == Format::Elf => {
            linked_texts(data)?.into_iter().map(Cow::Borrowed).collect()
        }
        _ => ptx_of(data)?.into_iter().collect(),
    };
    if found.is_empty() { Err(no_ptx(&[data])) } else { Ok(found) }
}

/// The PTX texts in a host object, one for each of its containers that has some.
fn object_texts(object: &[u8]) -> Outcome<Vec<Cow<'_, str>>> {
    let containers = outboard_image::object_containers(object).map_err(|error| damaged(&error))?;
    containers.into_iter().filter_map(|container| ptx_of(container).transpose()).collect()
}
