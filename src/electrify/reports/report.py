"""`electrify report DIR… --out report.html`: runs and results as a self-contained page."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from electrify.config import check_minimum
from electrify.errors import UserError
from electrify.reports.adaptation_section import (
    AdaptedFolder,
    adaptation_section,
    is_adaptation,
    read_adaptation,
)
from electrify.reports.blimp_section import PairsFolder, has_pairs, pairs_section, read_pairs_folder
from electrify.reports.comparison import comparison_section
from electrify.reports.glue_section import GlueFolder, glue_sections, read_glue
from electrify.reports.heat import Token, caught_text, counts_text, examples_of_run, heat_html
from electrify.reports.options import Report
from electrify.reports.page import (
    Html,
    Section,
    asset,
    check_page,
    document,
    joined,
    name,
    paragraph,
    text,
)
from electrify.reports.run import RunRecord, read_run
from electrify.reports.run_section import capitalised, run_section, state, verdict_headline
from electrify.reports.suite_section import (
    SuiteFolder,
    is_suite,
    read_suite_folder,
    suite_sections,
)
from electrify.reports.tuned_section import Tuned, is_tuned, read_tuned, tuned_section
from electrify.storage.commit import committed


def report(settings: Report) -> Path:
    """Read the folders, write the page and return its path."""
    _check(settings)
    names = _names(settings.folders)
    runs, results, tuned, pairs, suites, adapted = [], [], [], [], [], []
    for folder, label in zip(settings.folders, names, strict=True):
        if (folder / "run.json").is_file():
            runs.append(read_run(folder, label))
        elif is_suite(folder):
            suites.append(read_suite_folder(folder, label))
        elif (folder / "jobs").is_dir():
            results.append(read_glue(folder, label))
        elif is_tuned(folder):
            tuned.append(read_tuned(folder, label))
        elif is_adaptation(folder):
            adapted.append(read_adaptation(folder, label))
        elif has_pairs(folder):
            pairs.append(read_pairs_folder(folder, label))
        else:
            raise UserError(
                f"nothing to report in {folder}",
                got="no such folder" if not folder.is_dir() else "neither run.json nor jobs",
                fix="give the --out folder of `electrify pretrain`, `glue`, `suite`, `blimp` or "
                "`finetune`",
            )
    page = _page(runs, results, tuned, pairs, suites, adapted, settings.examples)
    with committed(settings.out) as temporary:
        temporary.write_bytes(page)
    print(settings.out)
    return settings.out


def _check(settings: Report) -> None:
    if not settings.folders:
        raise UserError("no folder to report on", got="no arguments", fix="electrify report DIR…")
    check_minimum(settings, examples=0)
    if settings.out.is_dir() or not settings.out.parent.is_dir():
        raise UserError(
            f"{settings.out} cannot be written",
            got="a folder" if settings.out.is_dir() else f"no folder {settings.out.parent}",
            fix="use an --out file in an existing folder",
        )
    check_page(settings.out)


def _names(folders: Sequence[Path]) -> list[str]:
    """Return the folders as given, or only their last names if the paths are absolute or go up.

    Folders with the same name get their full paths.
    """
    names = [
        folder.resolve().name if folder.is_absolute() or ".." in folder.parts else str(folder)
        for folder in folders
    ]
    names = [Path.cwd().name if label == "." else label for label in names]
    counts = Counter(names)
    return [str(f) if counts[label] > 1 else label for f, label in zip(folders, names, strict=True)]


def _page(
    runs: Sequence[RunRecord],
    results: Sequence[GlueFolder],
    tuned: Sequence[Tuned],
    pairs: Sequence[PairsFolder],
    suites: Sequence[SuiteFolder],
    adapted: Sequence[AdaptedFolder],
    count: int,
) -> bytes:
    sections = [
        run_section(run, f"run-{number}", *_examples(run, count))
        for number, run in enumerate(runs, 1)
    ]
    if len(runs) > 1:
        sections.insert(0, comparison_section(runs))
    if results:
        sections += glue_sections(results)
    if pairs:
        sections.append(pairs_section(pairs))
    sections += suite_sections(suites)
    if tuned:
        sections.insert(0, tuned_section(tuned))
    sections = [adaptation_section(a, n) for n, a in enumerate(adapted, 1)] + sections
    subjects = [*(a.name for a in adapted), *(r.name for r in runs), *(g.name for g in results)]
    subjects += [*(t.name for t in tuned)]
    subjects += [*(folder.name for folder in pairs), *(folder.name for folder in suites)]
    title = f"{', '.join(subjects)} – electrify report"
    heading = name(subjects[0])
    if len(subjects) == len(runs) == 1:
        intro, sections = paragraph(state(runs[0])), _promoted(sections[0])
    else:
        intro = _states(runs)
        counts = len(adapted), len(runs), len(results), len(tuned), len(pairs), len(suites)
        heading = heading if len(subjects) == 1 else _counted(*counts)
    return document(title, heading, intro, sections, asset("heat.css") if runs else "")


def _promoted(section: Section) -> list[Section]:
    """Return the parts of the only section as sections of the page."""
    loose = [part for part in section.parts if not isinstance(part, Section)]
    inner = [part for part in section.parts if isinstance(part, Section)]
    return [Section(text("At a glance"), loose), *inner]


def _counted(adapted: int, runs: int, results: int, tuned: int, pairs: int, suites: int) -> Html:
    kinds = (
        (adapted, "adapted model", "adapted models"),
        (runs, "run", "runs"),
        (results, "set of GLUE results", "sets of GLUE results"),
        (tuned, "fine-tuned model", "fine-tuned models"),
        (pairs, "set of minimal-pair results", "sets of minimal-pair results"),
        (suites, "suite", "suites"),
    )
    counts = [f"{count} {many if count > 1 else one}" for count, one, many in kinds if count]
    return text(", ".join(counts[:-1]) + " and " * (len(counts) > 1) + counts[-1])


def _states(runs: Sequence[RunRecord]) -> Html:
    return joined(
        paragraph(Html(f"{name(run.name)} {state(run)} {verdict_headline(run)}"), "tight")
        for run in runs
    )


def _examples(run: RunRecord, count: int) -> tuple[list[Html], str]:
    """Return heat maps, or why there are none, and a few tokens that were caught.

    Both are empty if none are requested or possible.
    """
    if not count or "discriminator" not in run.objective.roles:
        return [], ""
    try:
        found, threshold = examples_of_run(run.path, count)
    except (UserError, OSError) as error:  # a running training may prune what is being read
        why = error.what if isinstance(error, UserError) else f"{error}"
        return [paragraph(text(f"No examples can be shown: {why}."))], ""
    intro = paragraph(text(f"{HOW_TO_READ} {capitalised(str(threshold))}."))
    return [intro, *map(_heat, found)], caught_text(found)


HOW_TO_READ = (
    "Validation text in which the generator replaced masked tokens. The stronger the colour, the "
    "higher the predicted probability that a token was replaced; hover over a token to see it. "
    "✓ replaced and flagged (caught), ✗ replaced and missed, ! false alarm."
)


def _heat(tokens: Sequence[Token]) -> Html:
    caption = paragraph(text(counts_text(tokens)), "soft")
    return Html(f'<div class="example">\n{caption}\n{heat_html(tokens)}\n</div>')
