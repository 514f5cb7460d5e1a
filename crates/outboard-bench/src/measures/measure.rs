//! What a measure is called, and what it counts.

use crate::results::{Group, Unit};

/// A measure, described.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Measure {
    /// Its name; what stands before the first dot says where its code is.
    pub id: String,
    /// What it is, for people.
    pub title: String,
    /// What it counts.
    pub unit: Unit,
    /// Where it stands on the page.
    pub group: Group,
}

impl Measure {
    pub(crate) fn new(
        id: impl Into<String>,
        title: impl Into<String>,
        unit: Unit,
        group: Group,
    ) -> Measure {
        Measure { id: id.into(), title: title.into(), unit, group }
    }
}
