# Makes the sources of a driver with deliberate faults in them, for tests that explore the driver. A script includes
# this file that is run as
#   cmake -DDRIVER=.../src/coherence/PROTOCOL -DOUTPUT=FOLDER -P PROTOCOL_driver_mutants.cmake
# and sets PROTOCOL. It writes FOLDER/PROTOCOL_mutants_NAME.cpp for each NAME.cpp that has a fault. Each fault stands
# where the driver does the right thing. If the driver is changed, a fault may have to be changed, too: a place that is
# not found exactly once is an error.

# in_file(NAME): the calls of mutate() that follow, up to the next in_file(), change that source of the driver.
# in_file("") ends the last source.
macro(in_file NAME)
  if(file)
    file(WRITE ${OUTPUT}/${PROTOCOL}_mutants_${file}.cpp "${source}")
  endif()
  set(file ${NAME})
  if(file)
    file(READ ${DRIVER}/${file}.cpp source)
    string(REGEX MATCH "#include \"coherence/${PROTOCOL}/[a-z_]+\\.h\"\n" own "${source}")
    mutate("${own}" "${own}#include \"${PROTOCOL}_driver_mutants.h\"\n")
    mutate("\nnamespace multigrain::${PROTOCOL} {\n"
           "\nnamespace multigrain::${PROTOCOL} {\nusing explored::Mutant;\nusing explored::is;\n")
  endif()
endmacro()

function(mutate ORIGINAL MUTATED)
  string(FIND "${source}" "${ORIGINAL}" first)
  string(FIND "${source}" "${ORIGINAL}" last REVERSE)
  if(first EQUAL -1 OR NOT first EQUAL last)
    message(FATAL_ERROR "${CMAKE_CURRENT_LIST_FILE}: this is not, or more than once, in ${file}.cpp:\n${ORIGINAL}")
  endif()
  string(REPLACE "${ORIGINAL}" "${MUTATED}" changed "${source}")
  set(source "${changed}" PARENT_SCOPE)
endfunction()
