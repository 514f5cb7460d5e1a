//! Textures and surfaces, as instructions address them.

/// The shape of a texture or surface, as its coordinates address it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Geometry {
    /// One dimension.
    D1,
    /// Two dimensions.
    D2,
    /// Three dimensions.
    D3,
    /// Layers of one dimension; the first coordinate is the layer, an integer.
    A1,
    /// Layers of two dimensions, likewise.
    A2,
    /// Six square faces; three coordinates give a direction from the centre.
    Cube,
    /// Layers of cubemaps, likewise.
    ACube,
}

impl Geometry {
    /// Whether the first coordinate is a layer.
    pub fn is_layered(self) -> bool {
        matches!(self, Geometry::A1 | Geometry::A2 | Geometry::ACube)
    }

    /// Coordinates, the layer among them.
    pub fn coordinates(self) -> usize {
        match self {
            Geometry::D1 => 1,
            Geometry::D2 | Geometry::A1 => 2,
            Geometry::D3 | Geometry::A2 | Geometry::Cube => 3,
            Geometry::ACube => 4,
        }
    }
}

/// What a texture instruction reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fetch {
    /// The texel or the mix of texels at the coordinates.
    Sample,
    /// One component (0 to 3) of the four texels around.
    Gather(u8),
}

/// What becomes of an access outside of a surface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Boundary {
    /// The launch fails.
    Trap,
    /// The nearest element is accessed.
    Clamp,
    /// A load gives 0, a store is dropped.
    Zero,
}

/// What `txq` and `suq` ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Query {
    /// Elements in x.
    Width,
    /// Elements in y.
    Height,
    /// Elements in z.
    Depth,
    /// Layers.
    ArraySize,
    /// Mipmap levels.
    Levels,
}
