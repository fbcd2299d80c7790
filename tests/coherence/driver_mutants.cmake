# Makes the sources of a driver with deliberate faults in them, for tests that explore the driver. Included by a script that
# is run as
#   cmake -DDRIVER=.../src/coherence/PROTOCOL -DOUTPUT=FOLDER -P PROTOCOL_driver_mutants.cmake
# and sets PROTOCOL: it writes FOLDER/PROTOCOL_mutants_NAME.cpp for each NAME.cpp that has a fault. Each fault stands where the
# driver does the right thing. Where the driver is changed, this may have to be: a place that is not found once is an
# error.

# in_file(NAME): the mutate() that follow are of that source of the driver, up to the next in_file(). in_file(""): no more.
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
