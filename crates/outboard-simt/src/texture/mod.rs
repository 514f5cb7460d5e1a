//! Textures and surfaces: what they are made of, and the table that kernels find them in.
//!
//! An object's value is a small number, as on GPUs: an index into a table of the engine, so that no
//! value a kernel makes up is ever followed.

mod fetch;
mod filter;
mod surface;

use std::sync::Arc;

use parking_lot::RwLock;

pub(crate) use fetch::{FetchRequest, fetch, gather};
pub(crate) use surface::{Access, locate};

/// How the components of an element are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Component {
    /// Unsigned integers of 1, 2 or 4 bytes.
    Unsigned(u8),
    /// Signed integers of 1, 2 or 4 bytes.
    Signed(u8),
    /// Unsigned fractions of 1 or 2 bytes.
    UnsignedFraction(u8),
    /// Signed fractions of 1 or 2 bytes.
    SignedFraction(u8),
    /// Floating-point numbers of 16 bits.
    Half,
    /// Floating-point numbers of 32 bits.
    Float,
}

impl Component {
    /// Bytes of a component.
    pub fn bytes(self) -> u64 {
        match self {
            Component::Unsigned(bytes)
            | Component::Signed(bytes)
            | Component::UnsignedFraction(bytes)
            | Component::SignedFraction(bytes) => bytes.into(),
            Component::Half => 2,
            Component::Float => 4,
        }
    }

    /// Whether reading it gives a floating-point number, whatever the texture says.
    pub fn is_float(self) -> bool {
        !matches!(self, Component::Unsigned(_) | Component::Signed(_))
    }
}

/// Elements in device memory.
#[derive(Clone, Copy, Debug)]
pub struct Image {
    /// Address of the first.
    pub address: u64,
    /// Elements of a row, rows, and slices or layers; each at least 1.
    pub size: [u64; 3],
    /// Bytes from row to row and from slice to slice.
    pub strides: [u64; 2],
    /// How components are stored.
    pub component: Component,
    /// Components of an element: 1, 2 or 4.
    pub channels: u8,
}

impl Image {
    /// Bytes of an element.
    pub fn element(&self) -> u64 {
        self.component.bytes() * u64::from(self.channels)
    }
}

/// What coordinates outside of a texture mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addressing {
    /// The texture repeats.
    Wrap,
    /// The nearest element.
    Clamp,
    /// The texture repeats, every other time backwards.
    Mirror,
    /// The border's colour.
    Border,
}

/// How a texture is read.
#[derive(Clone, Copy, Debug)]
pub struct Sampler {
    /// Along each dimension.
    pub addressing: [Addressing; 3],
    /// Mixes the neighbouring elements.
    pub linear: bool,
    /// Coordinates from 0 to 1 cover the texture.
    pub normalized: bool,
    /// Integers are read as fractions of the greatest one.
    pub fractions: bool,
    /// Mixes neighbouring levels.
    pub linear_levels: bool,
    /// Added to the level, the least and the greatest level.
    pub level: [f32; 3],
    /// The colour outside.
    pub border: [f32; 4],
}

/// A texture object.
pub struct Texture {
    /// The levels, at least one, each half as large as the one before.
    pub levels: Vec<Image>,
    /// How it is read.
    pub sampler: Sampler,
    /// Whether slices are layers or faces and not a dimension.
    pub layered: bool,
    /// What must live as long as the object.
    pub keep: Option<Arc<dyn std::any::Any + Send + Sync>>,
}

/// A surface object.
pub struct Surface {
    /// Its elements.
    pub image: Image,
    /// What must live as long as the object.
    pub keep: Option<Arc<dyn std::any::Any + Send + Sync>>,
}

/// Objects of one kind, by their values.
pub struct Objects<T>(RwLock<Vec<Option<Arc<T>>>>);

impl<T> Default for Objects<T> {
    fn default() -> Objects<T> {
        Objects(RwLock::new(Vec::new()))
    }
}

impl<T> Objects<T> {
    /// Adds an object and gives its value, which is not 0.
    pub fn add(&self, object: T) -> u64 {
        let mut all = self.0.write();
        let object = Some(Arc::new(object));
        match all.iter().position(Option::is_none) {
            Some(index) => {
                all[index] = object;
                index as u64 + 1
            }
            None => {
                all.push(object);
                all.len() as u64
            }
        }
    }

    /// Ends an object; whether there was one.
    pub fn remove(&self, value: u64) -> bool {
        let index = (value as usize).wrapping_sub(1);
        let removed = self.0.write().get_mut(index).and_then(Option::take);
        removed.is_some()
    }

    /// The object of a value.
    pub(crate) fn get(&self, value: u64) -> Option<Arc<T>> {
        self.0.read().get((value as usize).wrapping_sub(1)).cloned().flatten()
    }
}

#[cfg(test)]
mod tests;
