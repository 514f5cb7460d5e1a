//! A bar of text.

/// A bar of so many cells, filled to a part.
pub(super) fn bar(part: Option<f64>, cells: usize) -> String {
    let Some(part) = part else { return format!("[{}]", "?".repeat(cells)) };
    let filled = (part.clamp(0.0, 1.0) * cells as f64).round() as usize;
    format!("[{}{}]", "|".repeat(filled), " ".repeat(cells - filled))
}
