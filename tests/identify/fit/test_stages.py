"""The ways to lower a cost: population searches by name, refinements, and the published method as a preset."""

import dataclasses
import itertools

import jax.numpy as jnp
import numpy as np
import pytest

from jaxmb.identify.assess.identify import identify
from jaxmb.identify.estimation.least_squares import Box
from jaxmb.identify.fit import loop
from jaxmb.identify.fit.loop import coarsened, run_fit
from jaxmb.identify.fit.problem import objective
from jaxmb.identify.fit.refine import Descent, LeastSquares, NelderMead
from jaxmb.identify.fit.search import PopulationSearch, algorithm_named, algorithm_names, evosax_algorithm
from jaxmb.identify.fit.settings import SearchPart
from jaxmb.identify.fit.state import distinct
from jaxmb.identify.study.study import load_study
from jaxmb.io.validation import InputError
from tests.identify.arm import BRIEF, FREE, frf, study_of

# SciPy's Nelder-Mead warns of nothing here; a warning of evosax or optax would be an error.


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return study_of(tmp_path_factory.mktemp("stages"), frf())


@pytest.fixture(scope="module")
def problem(study):
    return coarsened(study.problem, 32)


@pytest.fixture(scope="module")
def box(study):
    return Box(study.free.lower, study.free.upper, jnp.asarray(study.free.logarithmic))


@pytest.fixture(scope="module")
def truth(study):
    return np.asarray(study.free.encode(np.array([study.truth[n] for n in study.free.names])))


def advanced(stage, state, most=1000):
    """All states of a stage to its end."""
    states = [state]
    for _ in range(most):
        if stage.progress(states[-1]).finished:
            return states
        states.append(stage.advance(states[-1], np.inf))
    pytest.fail("the stage does not end")


def inside(u, box):
    return bool(np.all((u >= np.asarray(box.lower)) & (u <= np.asarray(box.upper))))


@pytest.mark.parametrize("algorithm", ["CMA_ES", "DifferentialEvolution", "PSO", "SimpleGA"])
def test_population_search(problem, box, truth, algorithm):
    """Thirty generations halve a bad start's cost at least, in the box, and the key alone decides how."""
    stage = PopulationSearch(problem, box, algorithm, 16, 30)
    first = np.asarray(box.lower)[None] + 0.1
    cost = float(objective(problem, jnp.asarray(first[0])))
    states = advanced(stage, stage.begin(0, first))
    for state in states:
        assert inside(np.asarray(state.population), box)
    costs = [float(state.best) for state in states]
    assert all(after <= before for before, after in itertools.pairwise(costs))
    assert costs[-1] < 0.5 * cost
    end = stage.progress(states[-1])
    assert end.objective == pytest.approx(float(objective(problem, jnp.asarray(end.u))), rel=1e-9)
    assert end.non_finite == 0
    assert 16 * 30 <= end.evaluations <= 16 * 31
    every = [stage.progress(state).costs for state in states]
    assert sum(of_one.size for of_one in every) == end.evaluations
    np.testing.assert_array_equal(np.minimum.accumulate([of_one.min() for of_one in every[1:]]), costs[1:])
    u, fitness = stage.outcome(states[-1])
    np.testing.assert_array_equal(u[0], end.u)
    assert fitness[0] == end.objective
    assert len(np.unique(u, axis=0)) == len(u)
    other = advanced(stage, stage.begin(0, first))[-1]
    np.testing.assert_array_equal(other.best_u, states[-1].best_u)
    other = advanced(stage, stage.begin(1, first))[-1]
    assert (np.asarray(other.best_u) != np.asarray(states[-1].best_u)).any()


def test_what_is_given_enters_the_population(problem, box, truth):
    """A search that starts from a population never ends above the best candidate it was given."""
    stage = PopulationSearch(problem, box, "SimpleGA", 16, 30)
    state = stage.begin(0, truth[None] + 1e-3)
    # Rounding of the way to the unit cube and back.
    assert float(state.best) == pytest.approx(float(objective(problem, jnp.asarray(truth + 1e-3))), rel=1e-6)


def test_candidates_that_are_not_finite_are_counted(problem, box, truth):
    """A weight that is no number makes every candidate's cost none; a search goes on and says so."""
    broken = dataclasses.replace(problem.tests[0], noise_std=jnp.asarray(0.0))
    stage = PopulationSearch(dataclasses.replace(problem, tests=(broken,)), box, "SimpleGA", 16, 30)
    state = stage.begin(0, truth[None])
    assert stage.progress(state).non_finite == 16
    state = stage.advance(state, np.inf)
    assert stage.progress(state).non_finite == 16 * 11
    assert stage.progress(state).objective == 1e300
    assert np.isfinite(np.asarray(state.population)).all()


def test_non_finite_costs_of_nelder_mead_are_counted(problem, box, truth):
    broken = dataclasses.replace(problem, noise_unit=jnp.asarray(np.nan))
    stage = NelderMead(broken, box, 20)
    end = stage.progress(advanced(stage, stage.begin(0, truth[None]))[-1])
    assert end.non_finite == end.evaluations >= 20


def test_history_holds_each_new_minimum_of_the_published_method(tmp_path):
    """The best cost so far at each evaluation, of the genetic algorithm and of Nelder-Mead behind it."""
    study = study_of(tmp_path, frf(), preset="huynh2020", rounds=1, search={"population": 16, "generations": 30},
                     refine={"most_steps": 40})  # fmt: skip
    result = identify(study)
    numbers, costs = np.array(result.history).T
    assert (np.diff(numbers) > 0).all()
    assert numbers[0] == 1
    assert (np.diff(costs) <= 0).all()
    # SciPy drops the last evaluations of a simplex that it had no more evaluations to finish
    assert 0.5 * result.cost < costs[-1] <= result.cost * (1 + 1e-9)
    assert numbers[-1] <= result.evaluations["search"] + result.evaluations["refine"]


def test_algorithms_by_name():
    """In any case and without _ and -, all that evosax has, and short ones."""
    names = {"cmaes": "CMA_ES", "CMA-ES": "CMA_ES", "de": "DifferentialEvolution", "pso": "PSO", "Auto": "auto"}
    assert {word: algorithm_named(word) for word in names} == names
    assert [algorithm_named(name.lower()) for name in algorithm_names()] == [*algorithm_names()]
    for wrong, near in {"SimpelGA": "SimpleGA", "cmeas": "cmaes", "randon": "random"}.items():
        with pytest.raises(ValueError, match=f"search algorithm '{wrong}' does not exist, did you mean '{near}'"):
            algorithm_named(wrong)


@pytest.mark.parametrize(("name", "population"), [("PGPE", 25), ("DifferentialEvolution", 2)])
def test_a_population_that_an_algorithm_cannot_have(name, population):
    with pytest.raises(ValueError, match=f"population is {population}, expected an even number of at least 4 for"):
        evosax_algorithm(name, population, 10, 4)


def test_one_word_is_a_setting(tmp_path):
    assert study_of(tmp_path, frf(), search="cmaes").settings.search == SearchPart(algorithm="CMA_ES")
    assert study_of(tmp_path, frf()).settings.search.algorithm == "auto"
    with pytest.raises(InputError, match=r"\[search\]: search algorithm 'cmeas' does not exist, did you mean 'cmaes'"):
        study_of(tmp_path, frf(), search="cmeas")


def test_default_searches_where_drawn_starts_did_not_end_the_fit(tmp_path, monkeypatch):
    """Two rounds of drawn starts disagree by the standard of so many that agree; CMA-ES begins the third one."""
    monkeypatch.setattr(loop, "RANDOM_ROUNDS", 2)
    seen = {}
    for algorithm in ("auto", "random"):
        study = study_of(tmp_path, frf(noise=0.01, noise_log_std=0.01), start="random", rounds=3, agreement=100,
                         search={"algorithm": algorithm, "population": 16, "generations": 10})  # fmt: skip
        reports = []
        fit = run_fit(study.problem, study.settings, study.start, 0, report=reports.append)
        seen[algorithm] = fit, {r.stage: r.round for r in reports[::-1]}
    (auto, stages), (drawn, others) = seen["auto"], seen["random"]
    assert stages["starts"] == 1
    assert stages["search"] == 3
    assert "search" not in others
    assert (auto.population_evaluations, drawn.population_evaluations) == (16 * 10, 0)
    assert auto.before_population == pytest.approx(drawn.best, rel=1e-9)
    assert auto.best <= auto.before_population < np.inf == drawn.before_population
    # all starts of one population count as one that agrees, and a search from the best minimum is one more
    assert sum(m <= auto.best * (1 + 1e-6) for m in auto.minima) <= 5


def test_starts_that_came_to_a_known_point_are_not_refined_again(tmp_path):
    """From few lines all starts of this arm that come to the lowest minimum come to one point: it is refined once."""
    study = study_of(tmp_path, frf(noise=0.01, noise_log_std=0.01), start="random", rounds=6, agreement=100)
    fit = run_fit(study.problem, study.settings, study.start, 0)
    agreeing = [m for m in fit.minima if m <= fit.best * (1 + 1e-6)]
    assert len(agreeing) > len(fit.refined) == len(distinct(fit.refined))
    assert fit.refine_evaluations < 20 * len(fit.refined)


@pytest.mark.parametrize(("count", "lines"), [(1, 32), (2, 32), (4, 16), (40, 8)])
def test_many_tests_have_fewer_coarse_lines_each(problem, count, lines):
    """Two tests of 32 lines share 64 with all others, and no test has fewer than eight."""
    (test,) = problem.tests
    many = dataclasses.replace(problem, tests=(test,) * count, views=(None,) * count)
    assert [each.omega.size for each in coarsened(many, 32).tests] == [lines] * count


@pytest.mark.parametrize(("once", "counted"), [(False, 3), (True, 1)])
def test_starts_at_a_known_minimum_are_counted(once, counted):
    """Three of six starts end at a minimum refined before: each agrees with it, or all of one population once."""
    fit = loop.Fit(refined=[np.array([7.0, 0.0, 0.0]), np.array([9.0, 1.0, 1.0])])
    new = [[2.0, 2.0], [3.0, 3.0], [2.0, 2.0]]
    ends, counts = loop._distinct_unrefined(fit, np.array([[0.0, 0.0]] * 3 + new), once)
    assert fit.minima == [7.0] * counted
    np.testing.assert_array_equal(ends, new[:2])
    assert counts == ([1, 1] if once else [2, 1])


@pytest.mark.parametrize(("exact", "waiting"), [(0.0, 0), (1e-9, 2)])
def test_starts_wait_only_where_an_exact_one_stops_the_others(problem, box, truth, exact, waiting):
    stage = LeastSquares("starts", problem, box, 50, 3, 1e-6, exact)
    first = stage.begin(0, truth + np.array([[0.2], [0.3], [0.4]]))
    after = stage.advance(first, np.inf)
    assert int(np.sum(np.asarray(after.evaluations) == 0)) == waiting


def test_unknown_algorithm_in_a_study(tmp_path):
    """Said when the study is read, with the place, and not when the fit begins."""
    lines = {"first_hz": 5.0, "last_hz": 30.0, "step_hz": 5.0}
    (tmp_path / "s.toml").write_text(
        'machine = "manipulator-3r"\n'
        f'[[test]]\nkind = "frf"\nsimulate = {{ lines = {{ {", ".join(f"{k} = {v}" for k, v in lines.items())} }} }}\n'
        '[free]\n"stiffness.*" = { lower = 2e5, upper = 2e7 }\n[search]\nalgorithm = "CMAS"\n'
    )
    message = r"s\.toml: \[search\]: search algorithm 'CMAS' does not exist, did you mean 'cmaes'\?"
    with pytest.raises(InputError, match=message):
        load_study(tmp_path / "s.toml")


@pytest.mark.parametrize(("method", "most", "factor"), [("nelder-mead", 2000, 1e-12), ("adam", 350, 1e-4),
                                                       ("l-bfgs", 200, 1e-10)])  # fmt: skip
def test_refinement_near_the_truth(problem, box, truth, method, most, factor):
    """From a few per cent off, the cost falls by as much as the method can do: to a fraction of its start's."""
    first = truth + 0.05 * np.array([1, -1, 1, -1])
    cost = float(objective(problem, jnp.asarray(first)))
    stage = NelderMead(problem, box, most) if method == "nelder-mead" else Descent(problem, box, method, most)
    states = advanced(stage, stage.begin(0, first[None]))
    end = stage.progress(states[-1])
    assert inside(end.u, box)
    assert end.objective == pytest.approx(float(objective(problem, jnp.asarray(end.u))), rel=1e-6, abs=1e-20)
    assert end.objective < factor * cost
    assert end.non_finite == 0
    assert end.evaluations <= most
    u, objectives = stage.outcome(states[-1])
    np.testing.assert_array_equal(u[0], end.u)
    assert objectives[0] == end.objective


def published(tmp_path, **settings):
    test = frf(weights={"peaks": 50, "elsewhere": 0.5})
    return study_of(tmp_path, test, preset="huynh2020", start="random", **settings)


def test_published_method(tmp_path):
    """A genetic algorithm, Nelder-Mead, values themselves and the printed phase, whatever else the study says."""
    study = published(
        tmp_path,
        rounds=2,
        search={"algorithm": "CMA_ES", "population": 16, "generations": 10},
        refine={"method": "adam", "most_steps": 100, "coarse_lines": 8},
    )
    search, refine = study.settings.search, study.settings.refine
    assert (search.algorithm, refine.method, refine.coarse_lines) == ("SimpleGA", "nelder-mead", 0)
    assert (search.population, search.generations) == (16, 10)
    assert not any(study.free.logarithmic)
    assert [t.phase for t in study.tests] == ["principal"]
    seen = []
    fit = run_fit(study.problem, study.settings, study.start, 0, report=seen.append)
    assert [(r.round, r.stage) for r in seen] == [(1, "search"), (1, "refine"), (2, "search"), (2, "refine")]
    costs = [r.cost for r in seen]
    assert all(after <= before for before, after in itertools.pairwise(costs))
    assert fit.best == costs[-1] < costs[0]
    assert fit.search_evaluations == 2 * 16 * 11
    assert fit.refine_evaluations >= 200
    assert inside(fit.best_u, Box(study.free.lower, study.free.upper, None))


def test_published_method_does_not_claim_what_it_did_not_reach(tmp_path):
    study = published(tmp_path, rounds=1, search={"population": 16, "generations": 10}, refine={"most_steps": 100})
    result = identify(study)
    assert not result.converged
    assert result.status.startswith("not converged after 1 rounds: ")


def test_a_start_that_creeps_ends(problem, box, truth):
    """After forty evaluations, where ten more lower chi-square by less than anything that matters; not before."""
    for part, most in ((1e-9, 40), (1e-2, 200)):
        stage = LeastSquares("refine", problem, box, 200, 1, 1e-9)
        stage._advance = lambda state, steps, part=part: state._replace(
            objective=np.where(np.isinf(state.objective), 1.0, state.objective * (1.0 - part)),
            evaluations=state.evaluations + steps,
        )
        states = advanced(stage, stage.begin(0, truth[None]))
        assert stage.progress(states[-1]).evaluations == most


@pytest.mark.parametrize("prior", [{}, {"stiffness.a": 0.5}])
def test_a_parameter_without_effect_keeps_its_initial_value(tmp_path, prior):
    """The joints turn about y alone, so that no response depends on the moment about x."""
    free = FREE | {"inertia.upper.xx": {"lower": 0.01, "upper": 5.0, "initial": 0.7}}
    if prior:
        free = free | {"stiffness.a": FREE["stiffness.*"] | {"initial": 4e4}}
    study = study_of(tmp_path, frf(noise=0.01, noise_log_std=0.01), free=free, prior=prior, **BRIEF)
    moment = identify(study, seed=1).parameters["inertia.upper.xx"]
    assert moment.value == pytest.approx(0.7, rel=1e-14)
    assert moment.identifiable == "no"
