//! The kernels of a program and the layout of their parameters, from machine code and from PTX.

use std::collections::HashMap;

use crate::error::Error;
use crate::fatbin::{Kind, entries};
use crate::locate::{Format, format_of};
use crate::memory::{u16_at, u32_at};
use crate::{elf, ptx};

/// A kernel as a launch needs to know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// The symbol, mangled if the compiler mangles it.
    pub name: String,
    /// In order of declaration.
    pub params: Vec<Param>,
    /// Bytes of the whole parameter buffer.
    pub params_size: u32,
}

/// One parameter in the parameter buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Param {
    /// Bytes from the start of the buffer.
    pub offset: u32,
    /// Bytes.
    pub size: u32,
}

/// All kernels of an image: of an ELF file, of a PTX text, or of the entry of a fat binary that
/// suits architecture `sm` (machine code first, then PTX; any entry if none suits, since the layout
/// does not depend on it).
///
/// # Errors
///
/// If the image is damaged or none.
pub fn kernels(image: &[u8], sm: u32) -> Result<Vec<Kernel>, Error> {
    match format_of(image)? {
        Format::Elf => from_elf(image),
        Format::Ptx => from_ptx_bytes(image),
        Format::Fatbin => {
            let mut best = None;
            for entry in entries(image) {
                let entry = entry?;
                let rank = match entry.kind {
                    Kind::Elf => (entry.runs_on(sm), true, entry.sm),
                    Kind::Ptx => (entry.runs_on(sm), false, entry.sm),
                    _ => continue,
                };
                if best.as_ref().is_none_or(|(best_rank, _)| rank > *best_rank) {
                    best = Some((rank, entry));
                }
            }
            let Some((_, entry)) = best else { return Ok(Vec::new()) };
            let contents = entry.contents()?;
            if entry.kind == Kind::Elf { from_elf(&contents) } else { from_ptx_bytes(&contents) }
        }
    }
}

fn from_ptx_bytes(bytes: &[u8]) -> Result<Vec<Kernel>, Error> {
    Ok(ptx::kernels(&String::from_utf8_lossy(bytes)))
}

/// Attributes of `.nv.info` sections.
const KPARAM_INFO: u8 = 0x17;
const KPARAM_INFO_V2: u8 = 0x45;
const CBANK_PARAM_SIZE: u8 = 0x19;
/// The record that is followed by as many bytes as its value says; the others have none.
const FORMAT_SIZED: u8 = 4;

/// The kernels of a cubin, with the parameters that its section `.nv.info.NAME` tells.
///
/// # Errors
///
/// If the ELF file is damaged.
pub fn from_elf(file: &[u8]) -> Result<Vec<Kernel>, Error> {
    let sections = elf::sections(file)?;
    let mut infos = HashMap::new();
    for section in &sections {
        if let Some(name) = section.name.strip_prefix(".nv.info.") {
            infos.insert(name, section.bytes);
        }
    }
    let kernel = |name: &str| {
        let (params, params_size) = param_info(infos.get(name).copied().unwrap_or(&[]));
        Kernel { name: name.to_owned(), params, params_size }
    };
    Ok(elf::kernel_names(&sections).into_iter().map(kernel).collect())
}

/// Reads the records of one kernel: u8 format, u8 attribute, u16 value, and bytes for the sized
/// format. Gives the parameters and the size of the parameter buffer.
fn param_info(mut bytes: &[u8]) -> (Vec<Param>, u32) {
    let mut found: Vec<(u16, Param)> = Vec::new();
    let mut total = None;
    while bytes.len() >= 4 {
        let (format, attribute, value) = (bytes[0], bytes[1], u16_at(bytes, 2));
        let size = if format == FORMAT_SIZED { usize::from(value) } else { 0 };
        let Some(data) = bytes.get(4..4 + size) else { break };
        match attribute {
            KPARAM_INFO if data.len() >= 12 => {
                let size = u32_at(data, 8) >> 18;
                found.push((u16_at(data, 4), Param { offset: u32::from(u16_at(data, 6)), size }));
            }
            KPARAM_INFO_V2 if data.len() >= 12 => {
                let size = u32::from(u16_at(data, 8));
                found.push((u16_at(data, 4), Param { offset: u32::from(u16_at(data, 6)), size }));
            }
            CBANK_PARAM_SIZE if format != FORMAT_SIZED => total = Some(u32::from(value)),
            _ => {}
        }
        bytes = &bytes[4 + size..];
    }
    let end = found.iter().map(|(_, param)| param.offset + param.size).max();
    let total = total.or(end).unwrap_or(0);
    found.sort_by_key(|&(ordinal, _)| ordinal);
    found.dedup_by_key(|&mut (ordinal, _)| ordinal);
    (found.into_iter().map(|(_, param)| param).collect(), total)
}
