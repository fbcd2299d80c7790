"""Multigrain for Spack 1.0 and newer: spack repo add packages/spack/spack_repo/multigrain, and, in the source tree,
spack dev-build multigrain@0.1.0."""

# Spack's recipes take all names of spack.package.
# ruff: noqa: F403, F405

from spack.package import *
from spack_repo.builtin.build_systems.cmake import CMakePackage, generator


class Multigrain(CMakePackage):
    """Runs a program written for one shared-memory machine on several, and says what that costs."""

    homepage = "https://multigrain.invalid"

    license("Apache-2.0")

    # There has been no release, so there is nothing that Spack could fetch.
    version("0.1.0")

    variant("python", default=True, description="mgstudy, the reports of mgtrace, and shared arrays of NumPy")
    variant("pmix", default=True, description="Started by mpirun of Open MPI and by srun, over PMIx")
    variant("pmi2", default=False, description="Started by mpirun of MPICH and by srun, over Slurm's PMI-2")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("m4", type=("build", "run"))

    # mgcc runs this compiler, and its passes are loaded into it; openmp=runtime brings omp.h.
    depends_on("llvm@19+clang openmp=runtime", type=("build", "link", "run"))
    depends_on("boost")
    depends_on("cli11")
    depends_on("elfutils")
    depends_on("fmt@9:")
    depends_on("hwloc@2:")
    depends_on("libsodium")
    depends_on("nlohmann-json")
    depends_on("tl-expected")
    depends_on("ucx")
    depends_on("xxhash")
    depends_on("zstd")
    depends_on("zydis@4:")
    depends_on("pmix", when="+pmix")
    depends_on("slurm", when="+pmi2")
    depends_on("python@3.10:", type="build")
    with when("+python"):
        extends("python@3.10:")
        depends_on("py-numpy", type="run")
        depends_on("py-plotly", type="run")
        depends_on("py-rich", type="run")

    conflicts("target=aarch64:", msg="Multigrain is for x86-64")
    requires("platform=linux")

    generator("ninja")

    @property
    def build_targets(self):
        return ["installed"]

    def cmake_args(self):
        return [
            self.define("CMAKE_INSTALL_LIBDIR", "lib"),
            self.define("MULTIGRAIN_TESTS", False),
            self.define("MULTIGRAIN_WERROR", False),
            self.define("MULTIGRAIN_PYTHON", self.spec["python"].command.path),
        ]

    # The packages that mgstudy and mgtrace use are in the folders that Spack has put into PYTHONPATH.
    def setup_run_environment(self, env):
        if self.spec.satisfies("+python"):
            env.set("MULTIGRAIN_PYTHON", self.spec["python"].command.path)
            env.prepend_path("PYTHONPATH", join_path(self.prefix.lib, "multigrain", "python"))
