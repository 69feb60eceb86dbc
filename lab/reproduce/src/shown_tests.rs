//! Whatever a result holds, its plots and pages are well-formed, and say what they leave out.

use std::collections::BTreeMap;

use proptest::prelude::*;

use crate::claims::{Better, Claims, Mode};
use crate::markup_tests::elements;
use crate::measured::Measured;
use crate::number::Finite;
use crate::plot;
use crate::render::{self, page};
use crate::result::*;

fn number() -> impl Strategy<Value = f64> {
    prop_oneof![
        3 => -1e6..1e6,
        1 => prop::num::f64::ANY,
        1 => Just(f64::INFINITY),
        1 => Just(0.0),
        1 => Just(f64::MAX),
        1 => Just(5e-324),
    ]
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![any::<String>(), "[a-z<>&\"']{0,8}", Just(String::new())]
}

fn axis() -> impl Strategy<Value = Axis> {
    let scale = prop_oneof![Just(Scale::Linear), Just(Scale::Log), Just(Scale::Category)];
    (text(), text(), scale, any::<bool>(), number(), number()).prop_map(
        |(label, unit, scale, fixed, low, high)| {
            let axis = Axis { scale, ..Axis::linear(&label, &unit) };
            if fixed { axis.range(low, high) } else { axis }
        },
    )
}

fn measured() -> impl Strategy<Value = Measured> {
    prop_oneof![
        prop::collection::vec(number(), 0..4).prop_map(|values| Measured::samples(&values)),
        (number(), text()).prop_map(|(value, why)| Measured::single(value).disturbed(why)),
        text().prop_map(Measured::missing),
        (prop::collection::vec(number(), 0..4), 0usize..3, any::<bool>()).prop_map(
            |(windows, discarded, quiet)| {
                let disturbed = (!quiet).then(measure::Disturbance::default);
                let kept = measure::Kept { discarded, disturbed, ..windows.into() };
                Measured::windows(&kept, 1, |value| *value)
            },
        ),
    ]
}

fn point() -> impl Strategy<Value = Point> {
    (number(), prop::option::of(text()), measured()).prop_map(|(x, label, measured)| {
        Point::new(Finite::new(x).unwrap_or(Finite::new(1.0).unwrap()), label, &measured)
    })
}

fn mark() -> impl Strategy<Value = Mark> {
    let of = prop_oneof![
        Just(MarkOf::Paper),
        Just(MarkOf::Goal),
        Just(MarkOf::Objective),
        Just(MarkOf::Limit)
    ];
    (of, text(), number(), number(), 0..3).prop_map(|(of, label, x, y, kind)| match kind {
        0 => Mark::vertical(of, x, label),
        1 => Mark::horizontal(of, y, label),
        _ => Mark::point(of, x, y, label),
    })
}

fn chart() -> impl Strategy<Value = Chart> {
    let marks = prop::collection::vec(mark(), 0..6);
    (text(), axis(), axis(), marks).prop_map(|(title, x, mut y, marks)| {
        // Only places along the bottom have names.
        if y.scale == Scale::Category {
            y.scale = Scale::Linear;
        }
        Chart { name: "chart".to_owned(), title, x, y, marks }
    })
}

fn series(chart: &Chart) -> impl Strategy<Value = Series> + use<> {
    let (x, y) = (chart.x.clone(), chart.y.clone());
    let role = prop_oneof![Just(Role::Measured), Just(Role::Paper), Just(Role::Theory)];
    let points = prop::collection::vec(point(), 0..12);
    (text(), role, points, prop::option::of(text())).prop_map(
        move |(name, role, points, not_run)| Series {
            chart: "chart".to_owned(),
            name,
            role,
            x: x.clone(),
            y: y.clone(),
            points,
            not_run,
        },
    )
}

fn figure() -> impl Strategy<Value = FigureResult> {
    let plot = chart().prop_flat_map(|chart| {
        let series = prop::collection::vec(series(&chart), 0..5);
        (Just(chart), series)
    });
    let claims = prop::collection::vec((measured(), 0usize..40, any::<bool>()), 0..4);
    let reasons = (prop::option::of(text()), prop::option::of(text()));
    (text(), plot, claims, reasons, prop::collection::vec(text(), 0..3)).prop_map(
        |(words, (chart, series), claims, (partial, not_run), notes)| {
            let list: Vec<_> = Claims::builtin().unwrap().iter().cloned().collect();
            FigureResult {
                format: FORMAT,
                figure: words.clone(),
                title: words.clone(),
                section: words.clone(),
                what: words.clone(),
                conditions: BTreeMap::from([(words.clone(), words)]),
                claims: claims
                    .into_iter()
                    .map(|(measured, index, own)| {
                        let mode = if own { list[index].mode } else { Mode::Theory };
                        ClaimResult::of(&list[index], mode, &measured)
                    })
                    .collect(),
                charts: vec![chart],
                series,
                partial,
                not_run,
                notes,
                repeats: 3,
                quick: true,
                seconds: Finite::new(1e300),
            }
        },
    )
}

proptest! {
    #[test]
    fn any_plot_is_well_formed(
        (chart, series) in chart().prop_flat_map(|chart| {
            let series = prop::collection::vec(series(&chart), 0..12);
            (Just(chart), series)
        }),
        prefix in text(),
    ) {
        let series: Vec<&Series> = series.iter().collect();
        for svg in [plot::svg(&chart, &series, &prefix), plot::standalone(&chart, &series, None), plot::standalone(&chart, &series, Some(&prefix))] {
            let elements = elements(&svg);
            prop_assert!(elements.is_ok(), "{elements:?} in {svg}");
            prop_assert_eq!(&elements.unwrap()[..3], ["svg", "title", "desc"]);
            prop_assert!(!svg.contains("NaN") || chart.title.contains("NaN"), "{svg}");
            let coordinates = svg.split(" d=\"").skip(1).filter_map(|path| path.split('"').next());
            for path in coordinates {
                prop_assert!(!path.contains("inf") && !path.contains("NaN"), "{path}");
            }
        }
    }

    #[test]
    fn any_page_is_well_formed(results in prop::collection::vec(figure(), 0..3), title in text()) {
        let claims = Claims::builtin().unwrap();
        for claims in [Some(&claims), None] {
            let page = page(&title, &results, claims);
            let elements = elements(&page);
            prop_assert!(elements.is_ok(), "{elements:?} in {page}");
            prop_assert!(!elements.unwrap().iter().any(|name| name == "script" || name == "img"));
        }
        for result in &results {
            prop_assert!(render::text(result).contains(&result.conditions.values().next().unwrap()[..]));
        }
    }

    #[test]
    fn any_result_survives_its_json(result in figure()) {
        let back: FigureResult = serde_json::from_str(&result.to_json()).unwrap();
        prop_assert_eq!(&back, &result);
        let report = Report::new(vec![result.clone(), result]);
        let back: Report = serde_json::from_str(&report.to_json()).unwrap();
        prop_assert_eq!(back, report);
    }
}

/// Texts of a plot that stand level: their boxes, by the estimate that the plot works with.
fn boxes(svg: &str) -> Vec<(f64, f64, f64, f64, bool)> {
    let attribute = |tag: &str, name: &str| {
        let value = tag.split(&format!("{name}=\"")).nth(1)?.split('"').next()?;
        Some(value.to_owned())
    };
    let mut boxes = Vec::new();
    for text in svg.split("<text x=").skip(1) {
        let (tag, rest) = text.split_once('>').unwrap();
        let tag = format!("x={tag}");
        let content = rest.split("</text>").next().unwrap();
        // The escaped forms stand for one character each.
        let mut content = content.to_owned();
        for entity in ["&amp;", "&lt;", "&gt;", "&quot;", "&#39;"] {
            content = content.replace(entity, "x");
        }
        let width = crate::label::text_width(&content);
        let x: f64 = attribute(&tag, "x").unwrap().parse().unwrap();
        let y: f64 = attribute(&tag, "y").unwrap().parse().unwrap();
        let left = match attribute(&tag, "text-anchor").unwrap().as_str() {
            "end" => x - width,
            "middle" => x - width / 2.0,
            _ => x,
        };
        boxes.push((left, y - 12.0, left + width, y + 4.0, tag.contains("halo")));
    }
    boxes
}

proptest! {
    #[test]
    fn texts_stay_in_the_picture_and_off_the_axes(
        (chart, series) in chart().prop_flat_map(|chart| {
            let series = prop::collection::vec(series(&chart), 0..6);
            (Just(chart), series)
        }),
    ) {
        let series: Vec<&Series> = series.iter().collect();
        let svg = plot::svg(&chart, &series, "p");
        let height = svg.split("viewBox=\"0 0 720 ").nth(1).unwrap().split('"').next().unwrap();
        let height: f64 = height.parse().unwrap();
        let axis = svg.split("class=\"axis\" d=\"M").nth(1).unwrap().split('"').next().unwrap();
        let corners: Vec<f64> =
            axis.split([' ', 'V', 'H']).map(|corner| corner.parse().unwrap()).collect();
        let [x_axis_left, top, bottom, right] = corners[..] else { panic!("{axis}") };
        let slack = 0.2;
        for (left, upper, end, lower, mark) in boxes(&svg) {
            prop_assert!(left >= -slack && end <= 720.0 + slack && lower <= height + slack && upper >= -slack,
                "{:?} leaves the picture of {height} in {svg}", (left, upper, end, lower));
            let crosses_y = left < x_axis_left - slack && end > x_axis_left + slack
                && upper < bottom && lower > top;
            prop_assert!(!crosses_y || mark, "{:?} crosses the y axis at {x_axis_left}", (left, end));
            let crosses_x = upper < bottom - slack && lower > bottom + slack && left < right
                && end > x_axis_left + slack;
            prop_assert!(!crosses_x, "{:?} crosses the x axis at {bottom}", (upper, lower));
            if mark {
                prop_assert!(left >= x_axis_left - slack && end <= right + slack && upper >= top - slack);
            }
        }
    }
}

fn simple(points: &[(f64, Measured)]) -> (Chart, Series) {
    let (x, y) = (Axis::linear("load", "requests/s"), Axis::log("p99", "us"));
    let chart = Chart {
        name: "chart".to_owned(),
        title: "Tail".to_owned(),
        x: x.clone(),
        y: y.clone(),
        marks: vec![Mark::horizontal(MarkOf::Paper, 50.0, "paper: 50 us")],
    };
    let points = points
        .iter()
        .map(|(x, measured)| Point::new(Finite::new(*x).unwrap(), None, measured))
        .collect();
    let name = "ours".to_owned();
    let chart_name = chart.name.clone();
    let series =
        Series { chart: chart_name, name, role: Role::Measured, x, y, points, not_run: None };
    (chart, series)
}

#[test]
fn a_plot_draws_what_it_has_and_says_what_it_has_not() {
    let (chart, series) = simple(&[
        (1.0, Measured::samples(&[10.0, 20.0, 40.0])),
        (2.0, Measured::single(0.0)),
        (3.0, Measured::single(30.0)),
        (4.0, Measured::missing("the generator fell behind")),
        (5.0, Measured::single(35.0).disturbed("a neighbour")),
    ]);
    let svg = plot::svg(&chart, &[&series], "p");
    assert_eq!(svg.matches("class=\"dot\"").count(), 2 + 1, "two points and one in the legend");
    assert_eq!(svg.matches("class=\"bar\"").count(), 1);
    assert_eq!(svg.matches("class=\"bad\"").count(), 1 + 1, "a point and its legend");
    assert!(svg.contains("2 values are not drawn"), "{svg}");
    assert!(svg.contains(">paper: 50 us</text>") && svg.contains("class=\"mark paper\""));
    assert!(svg.contains("ours, 1 requests/s: 20 us (10 to 40, n = 3)"), "{svg}");
    assert!(svg.contains("role=\"img\" aria-labelledby=\"p-t p-d\""));
    assert!(!svg.contains("http://") || svg.matches("http://").count() == 1, "only the namespace");
}

#[test]
fn title_and_conditions_stand_above_the_plot_in_one_picture() {
    let (chart, series) = simple(&[(1.0, Measured::single(20.0))]);
    let chart = Chart { title: "a < b".to_owned(), ..chart };
    let height = |svg: &str| -> f64 {
        let (_, rest) = svg.split_once("viewBox=\"0 0 720 ").unwrap();
        rest.split_once('"').unwrap().0.parse().unwrap()
    };
    let bare = plot::standalone(&chart, &[&series], None);
    let framed = plot::standalone(&chart, &[&series], Some(&"word ".repeat(60)));
    assert_eq!((framed.matches("<svg").count(), framed.matches("</svg>").count()), (1, 1));
    assert!(framed.contains(">a &lt; b</text>") && framed.contains("prefers-color-scheme:dark"));
    // Three lines of conditions, broken at blanks.
    assert_eq!(framed.matches("class=\"faint\"").count(), 3);
    assert_eq!(height(&framed), height(&bare) + 85.0);
    assert!(framed.contains("<g transform=\"translate(0 85)\">"));
    let long = plot::standalone(&chart, &[&series], Some(&"a".repeat(500)));
    assert!(long.contains("aaa…</text>"), "{long}");
}

#[test]
fn an_empty_plot_says_so() {
    let (chart, series) = simple(&[]);
    for series in [&[][..], &[&series][..]] {
        let svg = plot::svg(&chart, series, "p");
        assert!(svg.contains("nothing was measured"), "{svg}");
    }
}

/// Of one chart and one claim, whose goal is 0.95 or more.
fn scaling(measured: &Measured) -> FigureResult {
    let claims = Claims::builtin().unwrap();
    let claim = claims.get("ix.fig5a.core_scaling_efficiency").unwrap();
    let (chart, series) = simple(&[(1.0, Measured::single(20.0))]);
    FigureResult {
        format: FORMAT,
        figure: "ix/fig5a".to_owned(),
        title: "Scaling".to_owned(),
        section: "IX".to_owned(),
        what: "what".to_owned(),
        conditions: BTreeMap::from([("driver".to_owned(), "af_xdp, copy".to_owned())]),
        claims: vec![ClaimResult::of(claim, Mode::Real, measured)],
        charts: vec![chart],
        series: vec![series],
        partial: Some("the link went down".to_owned()),
        not_run: None,
        notes: vec!["a note".to_owned()],
        repeats: 5,
        quick: false,
        seconds: None,
    }
}

#[test]
fn a_document_has_bold_numbers_only_where_the_whole_spread_keeps_the_goal() {
    let row = |measured: &Measured| {
        let table = render::markdown(&[scaling(measured)]).unwrap();
        table.lines().nth(2).unwrap().to_owned()
    };
    let kept = Measured { discarded: 2, ..Measured::samples(&[0.97, 0.96, 0.98]) };
    let kept = row(&kept);
    assert!(
        kept.contains("| ≥ 0.95 | **0.97** | 0.96 to 0.98 | 3 (+2 discarded) | real |"),
        "{kept}"
    );
    let partly = row(&Measured::samples(&[0.97, 0.94, 0.98]));
    assert!(
        partly.contains("| 0.97 | 0.94 to 0.98 | 3 | real | met, but not by all of the spread")
    );
    assert!(row(&Measured::single(0.97)).contains("| 0.97 |  | 1 | real | met;"));
    for one in [Measured::samples(&[0.97]), Measured::ratio(&[0.97], &[1.0], 1)] {
        let row = row(&one);
        assert!(row.contains("| 0.97 |  | 1 | real | met;") && !row.contains("**"), "{row}");
    }
    let two = row(&Measured::samples(&[0.97, 0.98]));
    assert!(two.contains("|  | 2 | real | met;") && !two.contains("**"), "{two}");
    let disturbed = Measured { discarded: 4, ..Measured::samples(&[0.97]) }.disturbed("stolen");
    let disturbed = row(&disturbed);
    assert!(disturbed.contains("| 1 (+4 discarded) |"), "{disturbed}");
    let table = render::markdown(&[scaling(&Measured::missing("too few cores"))]).unwrap();
    assert!(table.contains("| – |  |  | sim | not run; too few cores |"), "{table}");
    assert!(table.contains("Left out of ix/fig5a: the link went down."), "{table}");
    assert!(table.ends_with("Conditions: driver: af_xdp, copy.\n"), "{table}");
}

#[test]
fn a_condition_of_one_result_is_not_shown_as_one_of_all() {
    let measured = Measured::single(0.97);
    let (one, mut two) = (scaling(&measured), scaling(&measured));
    two.conditions.remove("driver");
    two.conditions.insert("cores".to_owned(), "2".to_owned());
    let table = render::markdown(&[one, two]).unwrap();
    assert!(table.ends_with("Conditions: .\n"), "{table}");
}

#[test]
fn a_quick_result_is_not_for_a_document() {
    let result = FigureResult { quick: true, ..scaling(&Measured::single(0.97)) };
    assert!(render::text(&result).contains("QUICK: measured with --quick"));
    let error = render::markdown(&[result]).unwrap_err();
    assert!(error.contains("ix/fig5a") && error.contains("`--quick`"), "{error}");
}

#[test]
fn a_page_shows_every_claim_and_every_reason() {
    let claims = Claims::builtin().unwrap();
    let result = scaling(&Measured::samples(&[0.97, 0.96, 0.98]));
    assert_eq!(result.claims[0].better, Better::Higher);
    let page = page("title", &[result], Some(&claims));
    for claim in claims.iter() {
        assert!(page.contains(&claim.id), "{}", claim.id);
    }
    let others = claims.iter().count() - 1;
    for text in [
        "<span class=\"met\">1 met</span>",
        &format!("<span class=\"open\">{others} not run</span>"),
        "the link went down",
        "IX; mode real",
        "af_xdp, copy",
        "measured in mode real; the claim is of mode sim",
        "<b>0.97</b></td><td class=\"n\">0.96 to 0.98</td><td class=\"n\">3</td>",
        "a note",
        "no figure here fills it",
        "prefers-color-scheme:dark",
    ] {
        assert!(page.contains(text), "{text}");
    }
    assert_eq!(
        page.matches("<tr class=\"group\">").count(),
        5,
        "each paper and what is beyond stand once"
    );
}
