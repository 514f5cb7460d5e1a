//! How many handles a table has.

use super::Table;

impl<T> Table<T> {
    /// How many handles there are, those among them that are reserved and have no object yet.
    pub(crate) fn count(&self) -> usize {
        let slots = self.slots.lock();
        slots.next - slots.free.len()
    }
}
