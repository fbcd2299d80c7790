# Which of many tests that are a product (program x way to run x shape, say) ./test runs on every commit: as few as cover
# every pair of values of two factors that the product has. The others have the label full beside their own, and
# `./test full` runs them. tests/dev/covering_test.py checks that every pair is covered.
#
# covering_row(TEST FACTOR...): TEST, which add_test() has made in this directory, is the row with these values of the
# factors. A row belongs to one array with all rows of the directory.
function(covering_row TEST)
  list(JOIN ARGN "|" values)
  set_property(DIRECTORY APPEND PROPERTY MULTIGRAIN_COVERING_ROWS "${TEST}|${values}")
endfunction()

# covering_select(): to be called when the directory's rows are complete. Greedy: first the rows that cover three pairs that
# no other covers yet, then those that cover two, then one. With arrays of three factors as unequal as ours that comes
# close to the smallest, and it takes no time.
function(covering_select)
  get_property(rows DIRECTORY PROPERTY MULTIGRAIN_COVERING_ROWS)
  set(chosen)
  foreach(wanted 3 2 1)
    foreach(row IN LISTS rows)
      string(REPLACE "|" ";" values "${row}")
      list(POP_FRONT values test)
      list(GET values 0 a)
      list(GET values 1 b)
      list(GET values 2 c)
      set(new 0)
      foreach(pair "1|${a}|${b}" "2|${a}|${c}" "3|${b}|${c}")
        if(NOT DEFINED "covered|${pair}")
          math(EXPR new "${new} + 1")
        endif()
      endforeach()
      if(new EQUAL wanted)
        list(APPEND chosen ${test})
        foreach(pair "1|${a}|${b}" "2|${a}|${c}" "3|${b}|${c}")
          set("covered|${pair}" TRUE)
        endforeach()
      endif()
    endforeach()
  endforeach()
  foreach(row IN LISTS rows)
    string(REGEX REPLACE "\\|.*" "" test "${row}")
    if(NOT test IN_LIST chosen)
      set_property(TEST ${test} APPEND PROPERTY LABELS full)
    endif()
  endforeach()
  list(JOIN rows "\n" text)
  get_filename_component(directory ${CMAKE_CURRENT_SOURCE_DIR} NAME)
  file(WRITE ${PROJECT_BINARY_DIR}/covering/${directory}.txt "${text}\n")
endfunction()

# processors_of_run(OUT NODES PROCESSORS): ctest's PROCESSORS for a run of so many nodes and processors a node. Its threads
# wait most of the time, so they count as fewer than they are.
function(processors_of_run OUT NODES PROCESSORS)
  math(EXPR threads "${NODES} * ${PROCESSORS}")
  if(threads GREATER 8)
    set(${OUT} 4 PARENT_SCOPE)
  elseif(threads GREATER 2)
    set(${OUT} 2 PARENT_SCOPE)
  else()
    set(${OUT} 1 PARENT_SCOPE)
  endif()
endfunction()
