//! The demo's report as one self-contained page: a plot as inline SVG, the tables, the conditions;
//! dark or light as the reader's system is.

use std::fmt::Write;

use anyhow::{Context, anyhow};
use load::best_windows;
use plotters::prelude::*;

use super::config::SLO_P99_US;
use super::report::{Demo, System};

const COLORS: [RGBColor; 3] =
    [RGBColor(0, 130, 200), RGBColor(220, 90, 30), RGBColor(150, 150, 60)];

/// The page.
///
/// # Errors
/// The plot could not be drawn.
pub fn page(demo: &Demo) -> anyhow::Result<String> {
    let plot = plot(demo).context("drawing the latency plot")?;
    let mut rows = String::new();
    for system in demo.systems.iter().chain(&demo.variants) {
        write!(
            rows,
            "<tr><th>{}</th><td>{:.0}</td><td>{:.1}</td><td>{:.1}</td><td>{:.1}</td><td>{:.1}</td></tr>",
            escape(&system.name),
            system.throughput_at_slo_rps,
            system.p50_us,
            system.p99_us,
            system.p999_us,
            system.unloaded_p99_us
        )?;
    }
    let mut kernel = String::new();
    for client in &demo.kernel_client {
        write!(
            kernel,
            "<tr><th>{}</th><td>{:.0}</td><td>{:.1}</td><td>{:.1}</td><td>{:.1}</td><td>{:.1}</td></tr>",
            escape(&client.name),
            client.rps,
            client.p50_us,
            client.p99_us,
            client.unloaded_p50_us,
            client.unloaded_p99_us
        )?;
    }
    let mut echo = String::new();
    for system in &demo.echo.systems {
        let slowest = system.churn.cycles_per_s.iter().copied().fold(f64::INFINITY, f64::min);
        write!(
            echo,
            "<tr><th>{}</th><td>{:.1}</td><td>{:.1}</td><td>{:.0}</td><td>{:.0}</td><td>{:.0}</td><td>{}</td></tr>",
            escape(&system.name),
            system.round_trip_p50_us,
            system.round_trip_p99_us,
            system.rps_32,
            system.rps_1000,
            slowest,
            system.churn.errors
        )?;
    }
    let mut conditions = String::new();
    for (key, value) in &demo.conditions {
        write!(conditions, "<tr><th>{}</th><td class=t>{}</td></tr>", escape(key), escape(value))?;
    }
    Ok(format!(
        "<!doctype html><html lang=en><meta charset=utf-8>\
         <meta name=viewport content=\"width=device-width\"><title>tailplane demo</title><style>{STYLE}</style>\
         <h1>tailplane beside memcached on the kernel's stack</h1>\
         <p class=big>{:.2} &times; the throughput at p99 &lt; 500 &micro;s, {:.2} &times; better unloaded p99; \
         {:.2} of a bare AF_XDP reflector ({:.0} frames/s).</p>{plot}\
         <h2>One server core each, same veth pair, same open-loop client on our own dataplane</h2>\
         <table><tr><th>server<th>requests/s at SLO<th>p50 &micro;s<th>p99 &micro;s<th>p99.9 &micro;s<th>unloaded p99 &micro;s</tr>{rows}</table>\
         <h2>A client on kernel sockets, closed loop</h2>\
         <table><tr><th>server<th>requests/s<th>p50 &micro;s<th>p99 &micro;s<th>unloaded p50 &micro;s<th>unloaded p99 &micro;s</tr>{kernel}</table>\
         <h2>64-byte echo, kernel client, both servers spin</h2>\
         <table><tr><th>server<th>round trip p50 &micro;s<th>p99 &micro;s<th>messages/s, 32 connections<th>1,000 connections<th>connect-request-close/s, slowest window<th>errors</tr>{echo}</table>\
         <h2>Conditions</h2><table>{conditions}</table></html>\n",
        demo.ratio.throughput_at_slo,
        demo.ratio.unloaded_p99,
        demo.bound.fraction,
        demo.bound.reflector_rps
    ))
}

const STYLE: &str = "\
:root{color-scheme:light dark}body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;\
background:Canvas;color:CanvasText}table{border-collapse:collapse}th,td{padding:.2rem .8rem;text-align:right;\
border-bottom:1px solid color-mix(in srgb,CanvasText 20%,Canvas)}th:first-child{text-align:left}td.t{text-align:left}\
.big{font-size:1.3rem}svg{max-width:100%;height:auto;background:#fff;border-radius:6px}";

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn plot(demo: &Demo) -> anyhow::Result<String> {
    let mut svg = String::new();
    let systems: Vec<&System> = demo.systems.iter().chain(&demo.variants).collect();
    let most = systems
        .iter()
        .flat_map(|system| &system.points)
        .map(|point| point.achieved_rps)
        .fold(demo.bound.reflector_rps, f64::max)
        / 1000.0
        * 1.05;
    let failed = |error: DrawingAreaErrorKind<_>| -> anyhow::Error {
        let error: DrawingAreaErrorKind<std::io::Error> = error;
        anyhow!("{error}")
    };
    {
        let area = SVGBackend::with_string(&mut svg, (900, 420)).into_drawing_area();
        let mut chart = ChartBuilder::on(&area)
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(64)
            .build_cartesian_2d(0.0..most, (1.0..100_000.0f64).log_scale())
            .map_err(failed)?;
        chart
            .configure_mesh()
            .x_desc("thousand requests/s answered")
            .y_desc("p99 latency, us")
            .light_line_style(WHITE)
            .draw()
            .map_err(failed)?;
        let slo = [(0.0, SLO_P99_US), (most, SLO_P99_US)];
        chart
            .draw_series(LineSeries::new(slo, RGBColor(120, 120, 120)))
            .map_err(failed)?
            .label("objective")
            .legend(|(x, y)| PathElement::new([(x, y), (x + 16, y)], RGBColor(120, 120, 120)));
        for (system, color) in systems.iter().zip(COLORS) {
            let valid = system.points.iter().filter(|point| point.valid);
            let points: Vec<(f64, f64)> = best_windows(valid, |p| (p.offered_rps, p.p99_us))
                .into_iter()
                .map(|point| (point.achieved_rps / 1000.0, point.p99_us.clamp(1.0, 100_000.0)))
                .collect();
            chart
                .draw_series(LineSeries::new(points.iter().copied(), color.stroke_width(2)))
                .map_err(failed)?
                .label(system.name.as_str())
                .legend(move |(x, y)| {
                    PathElement::new([(x, y), (x + 16, y)], color.stroke_width(2))
                });
            chart
                .draw_series(points.iter().map(|&point| Circle::new(point, 3, color.filled())))
                .map_err(failed)?;
        }
        chart
            .configure_series_labels()
            .background_style(WHITE)
            .border_style(RGBColor(180, 180, 180))
            .draw()
            .map_err(failed)?;
        area.present().map_err(failed)?;
    }
    Ok(svg)
}
