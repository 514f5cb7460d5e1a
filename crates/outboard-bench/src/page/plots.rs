//! Plots: copies over their size, and applications against native.

use plotters::coord::Shift;
use plotters::prelude::*;

use super::tables::name;
use crate::BenchError;
use crate::numbers;
use crate::results::{Group, NATIVE, Results};
use crate::statistics::Summary;

/// A drawn plot.
pub(super) struct Plot {
    pub(super) name: String,
    pub(super) title: &'static str,
    pub(super) svg: String,
}

/// Colours that people who see few of them can tell apart.
const COLOURS: [(&str, RGBColor); 3] =
    [(NATIVE, RGBColor(90, 90, 90)), ("shm", RGBColor(0, 114, 178)), ("tcp", RGBColor(213, 94, 0))];

fn colour(way: &str) -> RGBColor {
    COLOURS
        .iter()
        .find(|(name, _)| *name == way)
        .map_or(RGBColor(0, 158, 115), |(_, colour)| *colour)
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// All plots that there are figures for.
pub(super) fn draw(results: &Results) -> Result<Vec<Plot>, BenchError> {
    let mut plots = Vec::new();
    for (kind, title) in [
        ("pinned", "Copies of pinned memory, GB/s"),
        ("pageable", "Copies of pageable memory, GB/s"),
    ] {
        let panels = ["h2d", "d2h"].map(|direction| Panel::of(results, kind, direction));
        if panels.iter().any(Panel::has_lines) {
            let name = format!("copies-{kind}.svg");
            plots.push(plot(name, title, (860, 340), |area| copies(area, &panels, title))?);
        }
    }
    let bars = bars(results);
    if !bars.is_empty() {
        let title = "Applications: time against native";
        let lines: usize = bars.iter().map(|(_, ways)| ways.len() + 1).sum();
        let size = (860, 80 + 24 * lines as u32);
        plots.push(plot("applications.svg".to_owned(), title, size, |area| {
            ratios(area, &bars, title)
        })?);
    }
    Ok(plots)
}

fn plot(
    name: String,
    title: &'static str,
    size: (u32, u32),
    draw: impl FnOnce(&Area<'_>) -> Drawn,
) -> Result<Plot, BenchError> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        let drawn: Drawn = area.fill(&WHITE).map_err(Into::into);
        let drawn =
            drawn.and_then(|()| draw(&area)).and_then(|()| area.present().map_err(Into::into));
        drawn.map_err(|error| BenchError::Plot(name.clone(), error.to_string()))?;
    }
    Ok(Plot { name, title, svg })
}

/// Copies of one kind in one direction.
struct Panel {
    title: &'static str,
    /// For each way: size in bytes and median in GB/s.
    lines: Vec<(String, Vec<(f64, f64)>)>,
}

impl Panel {
    fn of(results: &Results, kind: &str, direction: &str) -> Panel {
        let start = format!("copy.{kind}.{direction}.");
        let line = |way: &String| {
            let points = results.measures.iter().filter_map(|measured| {
                let size = numbers::size(measured.id.strip_prefix(&start)?)? as f64;
                Some((size, measured.summary(way)?.median / 1e9))
            });
            (way.clone(), points.collect())
        };
        let title = if direction == "h2d" { "to the device" } else { "from the device" };
        Panel { title, lines: results.ways.iter().map(line).collect() }
    }

    fn has_lines(&self) -> bool {
        self.lines.iter().any(|(_, points)| points.len() > 1)
    }
}

fn copies(area: &Area<'_>, panels: &[Panel], title: &str) -> Drawn {
    let points = || panels.iter().flat_map(|panel| &panel.lines).flat_map(|(_, points)| points);
    let top = points().map(|(_, rate)| *rate).fold(1.0, f64::max) * 1.15;
    let low = points().map(|(size, _)| *size).fold(f64::INFINITY, f64::min);
    let high = points().map(|(size, _)| *size).fold(low * 2.0, f64::max);
    let area = area.titled(title, ("sans-serif", 18))?;
    for (panel, part) in panels.iter().zip(area.split_evenly((1, panels.len()))) {
        let mut chart = ChartBuilder::on(&part)
            .caption(panel.title, ("sans-serif", 14))
            .margin(8)
            .margin_right(28)
            .x_label_area_size(28)
            .y_label_area_size(40)
            .build_cartesian_2d((low..high).log_scale().base(4.0), 0.0..top)?;
        chart
            .configure_mesh()
            .x_labels(7)
            .x_label_formatter(&|size| numbers::size_words(size.round() as usize))
            .y_label_formatter(&|rate| format!("{rate:.0}"))
            .light_line_style(TRANSPARENT)
            .label_style(("sans-serif", 12))
            .draw()?;
        for (way, points) in &panel.lines {
            let colour = colour(way);
            let line =
                LineSeries::new(points.iter().copied(), colour.stroke_width(2)).point_size(3);
            let sample =
                move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2));
            chart.draw_series(line)?.label(name(way)).legend(sample);
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE.mix(0.8))
            .label_font(("sans-serif", 12))
            .draw()?;
    }
    Ok(())
}

type Bars = Vec<(String, Vec<(String, Summary)>)>;

/// Applications with the ratios of the ways.
fn bars(results: &Results) -> Bars {
    let of_group = results.measures.iter().filter(|measured| measured.group == Group::Applications);
    let bars = of_group.map(|measured| {
        let remote = results.ways.iter().filter(|way| *way != NATIVE);
        let ratios = remote.filter_map(|way| Some((way.clone(), measured.ratio(way)?)));
        (measured.title.clone(), ratios.collect::<Vec<_>>())
    });
    bars.filter(|(_, ways)| !ways.is_empty()).collect()
}

/// Bars from the left, with a line at 1, which is what native takes.
fn ratios(area: &Area<'_>, bars: &Bars, title: &str) -> Drawn {
    const LEFT: i32 = 20;
    const WIDTH: f64 = 680.0;
    let longest =
        bars.iter().flat_map(|(_, ways)| ways).map(|(_, ratio)| ratio.high).fold(1.2, f64::max);
    let place = |ratio: f64| LEFT + (ratio / longest * WIDTH) as i32;
    let small = ("sans-serif", 13).into_font();
    let area = area.titled(title, ("sans-serif", 18))?;
    let mut y = 8;
    for (application, ways) in bars {
        area.draw(&Text::new(application.clone(), (LEFT, y + 4), small.clone()))?;
        y += 22;
        for (way, ratio) in ways {
            let colour = colour(way);
            area.draw(&Rectangle::new(
                [(LEFT, y), (place(ratio.median), y + 18)],
                colour.mix(0.75).filled(),
            ))?;
            let middle = y + 9;
            area.draw(&PathElement::new(
                [(place(ratio.low), middle), (place(ratio.high), middle)],
                BLACK,
            ))?;
            let label = format!("{:.2} {}", ratio.median, name(way));
            area.draw(&Text::new(
                label,
                (place(ratio.high.max(ratio.median)) + 6, y + 3),
                small.clone(),
            ))?;
            y += 22;
        }
        y += 4;
    }
    area.draw(&PathElement::new(
        [(place(1.0), 4), (place(1.0), y)],
        colour(NATIVE).stroke_width(2),
    ))?;
    area.draw(&Text::new("native", (place(1.0) + 4, y), small))?;
    Ok(())
}
